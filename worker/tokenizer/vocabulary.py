"""What decoding and stopping need to know of the tokens."""

from collections.abc import Iterable
from dataclasses import dataclass

ENDS_OF_TURN = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>")
"""Control tokens that end a reply wherever they exist, though some files name only one of them."""

_SHOWN = 40  # bytes of a token in a message


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One entry for each row of the model's embedding, even if the tokenizer has fewer tokens.

    texts        token id -> its bytes; control tokens have none, they are never shown
    control      token id -> its name, for tokens that only a template may write
    stop_ids     tokens that end a reply
    json         tokenizer.json
    """

    texts: list[bytes]
    control: dict[int, str]
    bos_id: int | None
    eos_id: int
    stop_ids: list[int]
    chat_template: str
    json: str

    def __len__(self) -> int:
        return len(self.texts)

    def difference(self, other: "Vocabulary") -> str | None:
        """Where the other has not the same tokens by the same ids, in words; None when it has. Rows that stand for no
        token don't count, nor whether a token is for templates alone."""
        ours, theirs = _named(self), _named(other)
        if len(ours) != len(theirs):
            return f"{len(ours)} tokens here and {len(theirs)} there"
        pairs = enumerate(zip(ours, theirs, strict=True))
        at = next((at for at, (one, two) in pairs if one != two), None)
        return None if at is None else f"token {at} is {ours[at][:_SHOWN]!r} here and {theirs[at][:_SHOWN]!r} there"


def stop_ids(named: Iterable[int | None], control: dict[int, str]) -> list[int]:
    """Those that the files name, and the control tokens that always end a turn."""
    ends = {index for index, name in control.items() if name in ENDS_OF_TURN}
    return sorted(ends | {index for index in named if index is not None})


def _named(vocabulary: Vocabulary) -> list[bytes]:
    """Each token's bytes, or its name if it has none, without the empty rows at the end."""
    names = [text or vocabulary.control.get(index, "").encode() for index, text in enumerate(vocabulary.texts)]
    while names and not names[-1]:
        names.pop()
    return names
