"""Prompt lookup: a run of tokens that has been seen before probably goes on as it did then.

source   Saxena, "Prompt Lookup Decoding", 2023
"""

from array import array

LENGTHS = (5, 3)  # of the runs that are looked up, longest first: agents copy names, paths and arguments
_TURNS = 2  # more in a row count as two
_MOST_TOKENS = 16_384  # of one sequence in its index at a time; about 300 bytes each


class NgramIndex:
    """Where each run of tokens of one sequence was seen last, built as far as the sequence has come.

    lengths   of the runs, in the order in which they are tried
    ranks     kinds of findings, which differ in what they are worth: by each length, a run that went on as the time
              before, or was seen once; behind these one that went on otherwise; and last one that did so twice in a
              row, as what stands before the numbers of a list does
    """

    def __init__(self, lengths: tuple[int, ...] = LENGTHS) -> None:
        self.lengths = lengths
        self.ranks = (_TURNS + 1) * len(lengths)
        self._after: list[dict[bytes, int]] = [{} for _ in lengths]
        self._turns: list[dict[bytes, int]] = [{} for _ in lengths]  # in a row; runs that are not in it made none
        self._known = 0  # runs that end before this token are in the index

    def find(self, tokens: "array[int]", most: int) -> tuple[list[int], list[int]]:
        """Up to `most` tokens that came after the run that `tokens` now ends with, and the rank of each.

        Nothing when that run has not been seen before.
        """
        self._catch_up(tokens)
        for rank, length in enumerate(self.lengths):
            start = self._after[rank].get(tokens[-length:].tobytes()) if len(tokens) >= length else None
            if start is not None:
                seen = list(tokens[start : start + most])
                ranks = [self._rank(tokens, rank, end) for end in range(start, start + len(seen))]
                # What was seen may be shorter than what is wanted: then it repeats itself, as in LZ77.
                times = -(-most // len(seen))
                return (seen * times)[:most], (ranks * times)[:most]
        return [], []

    def _rank(self, tokens: "array[int]", rank: int, end: int) -> int:
        """Of the run of that length that ends before `end`."""
        turns = self._turns[rank].get(tokens[end - self.lengths[rank] : end].tobytes(), 0)
        return rank + turns * len(self.lengths)

    def _catch_up(self, tokens: "array[int]") -> None:
        """Enters every run that has a token after it: the one at the very end has none."""
        if len(tokens) - self._known > _MOST_TOKENS or len(self._after[-1]) > _MOST_TOKENS:
            self._after, self._turns = [{} for _ in self.lengths], [{} for _ in self.lengths]
            self._known = max(0, len(tokens) - _MOST_TOKENS // 2)
        raw, width = tokens[max(0, self._known - max(self.lengths)) :].tobytes(), tokens.itemsize
        offset = max(0, self._known - max(self.lengths))
        for after, turns, length in zip(self._after, self._turns, self.lengths, strict=True):
            for end in range(max(self._known, length), len(tokens)):
                at = (end - offset) * width
                run = raw[at - length * width : at]
                before = after.get(run)
                if before is not None and tokens[before] != tokens[end]:
                    turns[run] = min(turns.get(run, 0) + 1, _TURNS)
                elif run in turns:
                    del turns[run]
                after[run] = end
        self._known = len(tokens)
