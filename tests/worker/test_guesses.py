"""Guesses of a draft model are made where they pay: by what a pass takes, by what was accepted, by what must be caught
up with, and by how many share a pass."""

import pytest
import torch

from tests.worker.rig import Rig, ask
from tests.worker.test_draft_model import beside, reply_of
from tests.worker.tiny import write_tiny
from worker.draft_model import DraftModel
from worker.drafting import Price
from worker.guesses import Guesses
from worker.model import Model
from worker.ngrams import NgramIndex
from worker.sequence import Sequence
from worker.speculation import Speculator
from worker.steptimes import StepTimes, Terms
from worker.tokenizer import Vocabulary
from worker.weights import open_weights
from worker.wire import Sampling

REPLY = Sampling(max_tokens=200, temperature=1.0, seed=4, ignore_eos=True)


class Fixed(StepTimes):
    """Times that no step changes, in seconds: a step or pass of up to four sequences, and each token more."""

    def __init__(self, plain: float, token: float) -> None:
        super().__init__()
        self._plain = dict.fromkeys(range(1, 5), plain)
        self._token = token

    def observe(self, sequences: int, rows: int, extra: int, seconds: float) -> None:
        """Knows it already."""


def speculator(model: Model, pass_seconds: float, step_seconds: float = 0.020) -> Speculator:
    """Nothing is ever looked up with success; a token of catching up takes a hundredth of a pass."""
    draft_model = beside(model)
    draft_model.times = Fixed(pass_seconds, pass_seconds / 100)
    found = Speculator(5, index=lambda: NgramIndex((200,)), draft_model=draft_model)
    found.times = Fixed(step_seconds, 0.0005)
    return found


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(open_weights(write_tiny(tmp_path_factory.mktemp("stranger") / "m.gguf", seed=1)), torch.float32)


def test_a_cheap_model_that_guesses_right_saves_steps(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, speculator=speculator(tiny_model, 0.002))
    rig.complete(ask(range(10, 20), sampling=REPLY))
    counters = rig.engine.counters
    assert counters.accepted["model"] == counters.drafted["model"] == 200 - counters.steps
    assert counters.steps < 60
    assert counters.drafted["ngram"] == 0


def test_a_model_as_dear_as_its_target_is_never_asked(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    """However right it guesses."""
    rig = Rig(tiny_model, tiny_vocabulary, speculator=speculator(tiny_model, 0.020))
    rig.complete(ask(range(10, 20), sampling=REPLY))
    assert (rig.engine.counters.drafted_tokens, rig.engine.counters.steps) == (0, 200)


def test_a_model_that_guesses_wrong_turns_itself_off(
    tiny_model: Model, stranger: Model, tiny_vocabulary: Vocabulary
) -> None:
    """And is tried again now and then."""
    rig = Rig(tiny_model, tiny_vocabulary, speculator=speculator(stranger, 0.002))
    rig.submit(ask(range(10, 20), sampling=REPLY))
    drafted = []
    while rig.engine.step():
        drafted.append(rig.engine.counters.drafted["model"])
    assert 0 < drafted[20] <= drafted[60] < 30
    assert drafted[60] < drafted[-1] < 50
    assert rig.engine.counters.accepted["model"] < drafted[-1] / 4


def test_what_a_grammar_or_the_end_forbids_is_as_wrong_as_what_is_rejected(
    tiny_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    own = speculator(tiny_model, 0.002)
    reply = reply_of(tiny_vocabulary, [5, 6])
    reply.drafter = own.drafter()
    assert reply.drafter is not None
    before = reply.drafter.trust
    assert reply.take_guesses([]) == []
    assert reply.drafter.trust < before
    assert reply.take_guesses([7, 8]) == [7, 8]


def drafting(model: DraftModel, vocabulary: Vocabulary, prompts: list[range], generated: int) -> dict[Sequence, int]:
    """How many guesses pay for replies to these prompts that have got so far, in a step of 20 ms."""
    own = Speculator(5, draft_model=model)
    limits = {}
    for prompt in prompts:
        reply = reply_of(vocabulary, prompt)
        reply.drafter = own.drafter()
        reply.tokens.extend(range(100, 100 + generated))
        limits[reply] = 5
    return Guesses(model)._lengths(limits, Terms(Price(0.0, 0.01), 50.0 * len(prompts)))


@pytest.mark.parametrize(("generated", "pays"), [(1, False), (60, True)])
def test_a_long_prompt_is_caught_up_with_when_the_reply_has_become_long_too(
    tiny_model: Model, tiny_vocabulary: Vocabulary, generated: int, pays: bool
) -> None:
    """Whose tokens take as long as one step, and the reply so far one or sixty."""
    model = beside(tiny_model)
    model.times = Fixed(0.001, 0.0002)
    assert bool(drafting(model, tiny_vocabulary, [range(100)], generated)) == pays
    assert drafting(model, tiny_vocabulary, [range(2)], generated)


def test_the_more_share_a_pass_the_sooner_it_pays(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    model = beside(tiny_model)
    model.times = Fixed(0.018, 0.0)
    assert not drafting(model, tiny_vocabulary, [range(2)], 50)
    model.times._plain[4] = 0.004
    assert len(drafting(model, tiny_vocabulary, [range(2)] * 4, 50)) == 4


def test_looking_up_comes_first(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    own = Speculator(5, adaptive=False, index=lambda: NgramIndex((1,)), draft_model=beside(tiny_model))
    rig = Rig(tiny_model, tiny_vocabulary, speculator=own)
    rig.complete(ask([5, 12], sampling=Sampling(max_tokens=60, temperature=0, logit_bias={"12": 100}, ignore_eos=True)))
    assert rig.engine.counters.drafted["ngram"] > 40
    assert rig.engine.counters.drafted["model"] == 0


def test_a_reply_that_loses_its_slot_or_ends_gives_back_its_place(
    tiny_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    own = Speculator(5, adaptive=False, index=lambda: NgramIndex((200,)), draft_model=beside(tiny_model, slots=2))
    assert own.draft_model is not None
    slots = own.draft_model.layout.slots
    rig = Rig(tiny_model, tiny_vocabulary, slots=2, speculator=own)
    rig.submit(ask(range(10, 20), request_id="one", sampling=REPLY))
    rig.submit(ask(range(10, 20), request_id="other", sampling=REPLY))
    for _ in range(3):
        rig.engine.step()
    assert slots.free == 0
    rig.scheduler.preempt(rig.scheduler.running[0])
    assert slots.free == 1
    rig.engine.abort(rig.scheduler.running[0].job.id)
    assert slots.free == 2
    rig.run()
    rig.check_idle()
