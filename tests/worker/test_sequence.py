"""One reply: when it ends, what of it is shown, and in which frames. The model's part is said by the test."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.worker.rig import Reply, ask
from worker.grammar import GrammarCompiler, Landing
from worker.sequence import Job, Sequence
from worker.tokenizer import Vocabulary
from worker.wire import Cached, Delta, Finish, Occupancy, Sampling

PROMPT = [5, 6, 7]


class Speaker:
    """A sequence whose model says what the test wants: the logits of one token stand out."""

    def __init__(
        self, vocabulary: Vocabulary, sampling: Sampling, grammar: str | None = None, context: int = 99
    ) -> None:
        self.reply = Reply()
        self._vocabulary = vocabulary
        grammars = [] if grammar is None else [GrammarCompiler(vocabulary).compile(grammar)]
        self.job = Job(ask(PROMPT, sampling=sampling), list(grammars), self.reply.frames.append)
        self.sequence = Sequence(self.job, 0, vocabulary, Landing(vocabulary), context)
        self.job.sequences = [self.sequence]
        self.job.start(Cached())

    def say(self, said: bytes | list[int]) -> Reply:
        """Says token ids, or bytes one token each, as long as the reply goes on."""
        texts = self._vocabulary.texts
        tokens: Iterable[int] = said if isinstance(said, list) else [texts.index(bytes([byte])) for byte in said]
        for token in tokens:
            if self.sequence.finished:
                break
            logits = np.zeros(len(texts), dtype=np.float32)
            logits[token] = 9
            self.sequence.advance(logits[None], [])
        return self.reply

    def end(self) -> Reply:
        assert self.sequence.finished
        self.job.end(Occupancy())
        self.reply.check()
        return self.reply


def greedy(max_tokens: int = 50, **others: Any) -> Sampling:
    return Sampling(max_tokens, temperature=0, **others)


def test_text_comes_as_it_is_said(tiny_vocabulary: Vocabulary) -> None:
    reply = Speaker(tiny_vocabulary, greedy()).say(b"salt")
    assert [frame.text for frame in reply.frames if isinstance(frame, Delta)] == ["s", "a", "l", "t"]


@pytest.mark.parametrize("end", [0, 2])
def test_a_stop_token_ends_the_reply_and_is_no_part_of_it(tiny_vocabulary: Vocabulary, end: int) -> None:
    speaker = Speaker(tiny_vocabulary, greedy())
    speaker.say(b"ab")
    speaker.say([end])
    reply = speaker.end()
    assert (reply.text(), reply.finish()) == ("ab", Finish(0, "stop", 2))


def test_a_stop_id_of_the_request_ends_it_too(tiny_vocabulary: Vocabulary) -> None:
    end = tiny_vocabulary.texts.index(b"!")
    speaker = Speaker(tiny_vocabulary, greedy(stop_ids=[end], ignore_eos=True))
    speaker.say(b"ab!cd")
    assert (speaker.end().text(), speaker.reply.finish().reason) == ("ab", "stop")


def test_with_ignore_eos_a_reply_goes_on_and_shows_nothing_of_it(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(4, ignore_eos=True))
    speaker.say(b"a")
    speaker.say([2, 0])
    speaker.say(b"b")
    reply = speaker.end()
    assert (reply.text(), reply.finish()) == ("ab", Finish(0, "length", 4))


def test_min_tokens_puts_the_end_off(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(min_tokens=3))
    reply = speaker.say([2, 2, 2])
    assert not speaker.sequence.finished
    assert len(reply.tokens()) == 3
    assert not set(reply.tokens()) & set(tiny_vocabulary.stop_ids)
    speaker.say([2])
    assert speaker.end().finish() == Finish(0, "stop", 3)


def test_min_tokens_lets_stop_strings_pass_too(tiny_vocabulary: Vocabulary) -> None:
    """As vLLM's does: there a reply with `min_tokens` once ended at the first line break all the same."""
    speaker = Speaker(tiny_vocabulary, greedy(stop=["\n"], min_tokens=3))
    speaker.say(b"\na\n b\nc")
    assert (speaker.end().text(), speaker.reply.finish()) == ("\na\n b", Finish(0, "stop", 6, "\n"))


def test_when_nothing_may_follow_the_reply_ends(tiny_vocabulary: Vocabulary) -> None:
    everything = list(range(len(tiny_vocabulary)))
    speaker = Speaker(tiny_vocabulary, greedy(min_tokens=1, stop_ids=everything))
    speaker.say([9])
    assert speaker.end().finish() == Finish(0, "stop", 0)


def test_max_tokens_ends_with_length(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(3))
    speaker.say(b"abcdef")
    assert (speaker.end().text(), speaker.reply.finish()) == ("abc", Finish(0, "length", 3))


def test_the_context_ends_with_length(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(50), context=len(PROMPT) + 2)
    speaker.say(b"abcdef")
    assert speaker.end().finish() == Finish(0, "length", 2)


def test_a_stop_string_is_cut_out_and_named(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(stop=["END", "\n\n"]))
    speaker.say(b"go ENDon")
    reply = speaker.end()
    assert (reply.text(), reply.finish()) == ("go ", Finish(0, "stop", 6, "END"))


def test_text_held_for_a_stop_comes_with_the_end(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(5, stop=["END"]))
    speaker.say(b"go EN")
    *_, last, finish = speaker.reply.frames
    assert (last, finish) == (Delta(0, "EN", []), Finish(0, "length", 5))
    assert speaker.end().text() == "go EN"


def test_a_character_comes_with_its_last_token(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy())
    reply = speaker.say("é🧂".encode())
    assert [frame.text for frame in reply.frames if isinstance(frame, Delta)] == ["", "é", "", "", "", "🧂"]
    assert len(reply.tokens()) == 6


def test_a_character_that_is_cut_off_is_replaced(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(3))
    speaker.say("🧂".encode())
    assert speaker.end().text() == "\ufffd"


def test_an_abort_gives_out_what_was_held(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(stop=["END"]))
    speaker.say(b"go E")
    speaker.sequence.finish("abort")
    speaker.sequence.finish("deadline")
    assert (speaker.end().text(), speaker.reply.finish()) == ("go E", Finish(0, "abort", 4))


def test_forced_tokens_come_in_the_delta_of_the_choice_before_them(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(), grammar='start: "{" /[xy]/ ": forced" /[.!]/')
    reply = speaker.say(b"{")
    assert reply.text() == "{"
    speaker.say(b"x")
    assert reply.frames[-1] == Delta(0, "x: forced", reply.tokens()[1:])
    speaker.say(b"!")
    assert speaker.end().text() == "{x: forced!"
    assert reply.finish().reason == "stop"


def test_with_logprobs_every_token_has_its_own(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(logprobs=2), grammar='start: /[xy]/ "abc"')
    speaker.say(b"xqqq")
    reply = speaker.end()
    assert reply.text() == "xabc"
    assert [logprob.token for logprob in reply.logprobs()] == reply.tokens()
    assert all(len(logprob.top) == 2 for logprob in reply.logprobs())


def test_forced_tokens_stop_at_the_limit(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(3), grammar='start: /[xy]/ "abcdef"')
    speaker.say(b"x")
    assert (speaker.end().text(), speaker.reply.finish()) == ("xab", Finish(0, "length", 3))


def test_a_stop_string_in_forced_text_ends_the_reply(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(stop=["bc"]), grammar='start: /[xy]/ "abcdef"')
    speaker.say(b"x")
    assert (speaker.end().text(), speaker.reply.finish().stop) == ("xa", "bc")


def test_a_grammar_outweighs_the_logits(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(), grammar='start: "yes" | "no"')
    speaker.say(b"qqq")
    assert speaker.end().text() in ("yes", "no")


def test_penalties_count_forced_tokens_too(tiny_vocabulary: Vocabulary) -> None:
    speaker = Speaker(tiny_vocabulary, greedy(presence_penalty=2), grammar='start: /[xy]/ "ab" /[bc]/')
    speaker.say(b"x")
    speaker.sequence.advance(np.zeros((1, len(tiny_vocabulary)), dtype=np.float32), [])
    assert speaker.end().text() == "xabc"
