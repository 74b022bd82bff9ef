"""Rows of few tokens over slots in plain torch: slots that lie side by side are computed together."""

import torch
from torch import Tensor

from kernels import fold_mask, length_mask, slots_attention
from worker.rows import Row

_CALL_BYTES = 600_000  # of keys and values, which take as long to read as one more call takes

Placed = tuple[int, Row]  # the row's first token among those of all rows, and the row


class SlotRuns:
    """The rows of few tokens.

    rows   their tokens follow each other
    keys   of all layers, as SlotAttention has them
    """

    def __init__(self, rows: list[Row], keys: Tensor) -> None:
        in_turn = placed(rows)
        self._slot = torch.tensor([row.slot for row in rows for _ in range(row.count)])
        self._position = torch.tensor([row.start + at for row in rows for at in range(row.count)])
        call = _CALL_BYTES // (2 * keys.shape[2] * keys.shape[3] * keys.element_size())
        self._runs = [_Run(run, keys.dtype) for run in adjacent(sorted(in_turn, key=lambda place: place[1].slot), call)]

    def mix(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
        """Writes their KV into the slots of one layer, and returns [tokens, heads, head_dim] of all few.

        q, k, v   of those tokens alone
        """
        keys[self._slot, :, :, self._position] = k
        values[self._slot, :, self._position] = v
        if self._runs[0].is_all(len(q)):
            return self._runs[0].mix(q, keys, values, window)
        mixed = torch.empty(q.shape, dtype=q.dtype)
        for run in self._runs:
            mixed[run.tokens] = run.pick(run.mix(q[run.queries], keys, values, window))
        return mixed


class _Run:
    """Rows of few tokens in slots that lie side by side; slots between them are computed too and thrown away.

    queries   int64 [slots * count], the token of each query; any token where there is no query
    tokens    int64, the tokens that are meant
    """

    def __init__(self, placed: list[Placed], dtype: torch.dtype) -> None:
        self._first = placed[0][1].slot
        self._slots = placed[-1][1].slot + 1 - self._first
        self._count = count = max(row.count for _, row in placed)
        self._longest = max(row.start + row.count for _, row in placed)
        self._dtype = dtype
        queries = [0] * (self._slots * count)
        lengths = [1] * (self._slots * count)
        places: list[int] = []
        for first, row in placed:
            base = (row.slot - self._first) * count
            places += range(base, base + row.count)
            queries[base : base + row.count] = range(first, first + row.count)
            lengths[base : base + row.count] = range(row.start + 1, row.start + row.count + 1)
        self.queries = torch.tensor(queries)
        self._lengths = torch.tensor(lengths).view(self._slots, count)
        self._places = torch.tensor(places)
        self.tokens = self.queries[self._places]
        self._masks: dict[int | None, Tensor | None] = {}

    def is_all(self, tokens: int) -> bool:
        """Whether its queries are just all tokens of the forward pass in their order."""
        return len(self.queries) == tokens and self.queries.tolist() == list(range(tokens))

    def pick(self, mixed: Tensor) -> Tensor:
        """Of what `mix` gave, what belongs to `tokens`."""
        return mixed[self._places]

    def mix(self, q: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
        """q [slots * count, heads, head_dim] -> as much again."""
        near = slice(self._first, self._first + self._slots)
        queries = q.reshape(self._slots, self._count, *q.shape[1:])
        if window not in self._masks:
            self._masks[window] = self._mask(window, keys.shape[1], q.shape[1])
        return slots_attention(queries, keys[near], values[near], self._longest, self._masks[window]).flatten(0, 1)

    def _mask(self, window: int | None, groups: int, heads: int) -> Tensor | None:
        if bool((self._lengths == self._longest).all()) and (window is None or window >= self._longest):
            return None
        return fold_mask(length_mask(self._lengths, self._longest, self._dtype, window), groups, heads // groups)


def adjacent(placed: list[Placed], call: int) -> list[list[Placed]]:
    """Cuts rows, sorted by slot, into runs such that the least is read, each run to its longest row.

    call   positions that count as much as a run more
    """
    costs, cuts = [0], [0]
    for end in range(1, len(placed) + 1):
        best, cut, longest = 1 << 62, 0, 0
        for begin in range(end - 1, -1, -1):
            row = placed[begin][1]
            longest = max(longest, row.start + row.count)
            here = call + (placed[end - 1][1].slot + 1 - row.slot) * longest
            if here >= best:
                break
            if costs[begin] + here < best:
                best, cut = costs[begin] + here, begin
        costs.append(best)
        cuts.append(cut)
    runs = []
    end = len(placed)
    while end:
        runs.append(placed[cuts[end] : end])
        end = cuts[end]
    return runs[::-1]


def placed(rows: list[Row]) -> list[Placed]:
    """Rows whose tokens follow each other."""
    found, first = [], 0
    for row in rows:
        found.append((first, row))
        first += row.count
    return found
