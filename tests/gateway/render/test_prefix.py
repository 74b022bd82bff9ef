"""Tokenizers that imagine a space before text: cut at control tokens and openings, the ids stay those of the whole."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from gateway.chat.messages import Message
from gateway.render import Renderer, RendererModel
from gateway.render.prefix import Follows, spaced_after, unspaced
from gateway.render.tokens import Tokens

SPACE = "\u2581"
SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGES = [(SPACE, "t"), ("h", "e"), (f"{SPACE}t", "he"), ("t", "he")]


def legacy(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])


def metaspace(scheme: str) -> Any:
    def build(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)

    return build


KINDS = {
    "legacy": (legacy, {Follows.NOTHING, Follows.CONTROL}),
    "always": (metaspace("always"), {Follows.NOTHING, Follows.CONTROL}),
    "first": (metaspace("first"), {Follows.NOTHING}),
    "never": (metaspace("never"), set()),
}


def tokenizer_of(kind: str) -> Tokenizer:
    singles = [SPACE, *"the\n"]
    names = ["<unk>", *SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *singles, *(a + b for a, b in MERGES)]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    KINDS[kind][0](tokenizer)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.add_tokens([AddedToken("[CALL]é", special=False, normalized=False)])
    return tokenizer


WHOLE = {kind: tokenizer_of(kind) for kind in KINDS}
TOKENS = {kind: Tokens(whole.to_str(), SPECIALS) for kind, whole in WHOLE.items()}
texts = st.lists(st.sampled_from([*SPECIALS, "the ", " the", "th", "\n", "é", "塩", " "])).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=texts)
def test_piece_by_piece_is_the_whole(kind: str, text: str) -> None:
    ids: list[int] = []
    follows = Follows.NOTHING
    for piece, is_control in TOKENS[kind].cut(text):
        ids += [TOKENS[kind].control(piece)] if is_control else TOKENS[kind].encode(piece, follows=follows)
        follows = Follows.CONTROL
    assert ids == WHOLE[kind].encode(text).ids


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_space_is_imagined_is_read_from_the_tokenizer(kind: str) -> None:
    described = json.loads(WHOLE[kind].to_str())
    assert spaced_after(described) == KINDS[kind][1]
    assert spaced_after(unspaced(described)) == frozenset()
    assert Tokenizer.from_str(json.dumps(unspaced(described))).encode("the").tokens == ["the"]


def test_a_byte_level_tokenizer_may_imagine_it_too() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "Ġ": 1}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=True)])
    described = json.loads(tokenizer.to_str())
    assert spaced_after(described) == {Follows.NOTHING, Follows.CONTROL}
    assert Tokenizer.from_str(json.dumps(unspaced(described))).encode("a").tokens == ["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_sent_back_keeps_the_ids_that_it_had(kind: str) -> None:
    """The model goes on after the opening, in the midst of text, where no space is imagined."""
    whole = WHOLE[kind]
    renderer = Renderer(
        RendererModel(tokenizer=whole.to_str(), chat_template=TEMPLATE, special_tokens=SPECIALS, bos_id=1, eos_id=4)
    )
    asked = (Message("user", "the the"),)
    prompt = renderer.render(asked).tokens
    reply = [whole.token_to_id("the"), whole.token_to_id(f"{SPACE}the")]
    again = renderer.render((*asked, Message("assistant", "the the"))).tokens
    assert again[: len(prompt) + 2].tolist() == [*prompt, *reply]


@pytest.mark.parametrize("kind", KINDS)
def test_each_token_has_its_bytes(kind: str) -> None:
    tokens, id_of = TOKENS[kind], WHOLE[kind].get_vocab().__getitem__
    assert tokens.bytes_of(id_of(f"{SPACE}the")) == b" the"
    assert tokens.bytes_of(id_of("<0xE5>")) == b"\xe5"
    assert tokens.bytes_of(id_of("<s>")) == b"<s>"
    assert tokens.bytes_of(id_of("[CALL]é")) == "[CALL]é".encode()
    joined = b"".join(map(tokens.bytes_of, tokens.encode("the 塩")))
    assert joined == (" the 塩" if Follows.CONTROL in KINDS[kind][1] else "the 塩").encode()


@pytest.mark.parametrize("kind", KINDS)
def test_places_in_a_piece_are_found_behind_an_imagined_space(kind: str) -> None:
    piece = "the the塩the"
    ids = [WHOLE[kind].id_to_token(token) for token in TOKENS[kind].encode(piece)]
    places = TOKENS[kind].places(piece, [0, 3, 8])
    assert [ids[place] for place in places[1:]] == [f"{SPACE}the", "the"]
    assert places[0] == 0
