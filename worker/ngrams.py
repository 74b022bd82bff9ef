"""Prompt lookup: a run of tokens that has been seen before probably goes on as it did then.

source   Saxena, "Prompt Lookup Decoding", 2023
"""

from array import array

LENGTHS = (5, 3)  # of the runs that are looked up, longest first: agents copy names, paths and arguments
_MOST_TOKENS = 16_384  # of one sequence in its index at a time; about 300 bytes each


class NgramIndex:
    """Where each run of tokens of one sequence was seen last, built as far as the sequence has come.

    lengths   of the runs, in the order in which they are tried
    """

    def __init__(self, lengths: tuple[int, ...] = LENGTHS) -> None:
        self.lengths = lengths
        self._after: list[dict[bytes, int]] = [{} for _ in lengths]
        self._known = 0  # runs that end before this token are in the index

    def find(self, tokens: "array[int]", most: int) -> tuple[list[int], int]:
        """Up to `most` tokens that came after the run that `tokens` now ends with, and which of the lengths it has.

        Nothing, and any length, when that run has not been seen before.
        """
        self._catch_up(tokens)
        for rank, length in enumerate(self.lengths):
            start = self._after[rank].get(tokens[-length:].tobytes()) if len(tokens) >= length else None
            if start is not None:
                seen = list(tokens[start : start + most])
                # What was seen may be shorter than what is wanted: then it repeats itself, as in LZ77.
                return (seen * -(-most // len(seen)))[:most], rank
        return [], 0

    def _catch_up(self, tokens: "array[int]") -> None:
        """Enters every run that has a token after it: the one at the very end has none."""
        if len(tokens) - self._known > _MOST_TOKENS or len(self._after[-1]) > _MOST_TOKENS:
            self._after = [{} for _ in self.lengths]
            self._known = max(0, len(tokens) - _MOST_TOKENS // 2)
        raw, width = tokens[max(0, self._known - max(self.lengths)) :].tobytes(), tokens.itemsize
        offset = max(0, self._known - max(self.lengths))
        for after, length in zip(self._after, self.lengths, strict=True):
            for end in range(max(self._known, length), len(tokens)):
                at = (end - offset) * width
                after[raw[at - length * width : at]] = end
        self._known = len(tokens)
