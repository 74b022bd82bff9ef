"""Attention over slots: few tokens of many sequences all at once, chunks of prompts one by one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import causal_mask, fold_mask, length_mask, prefill_attention, slots_attention
from worker.rows import Row

_FEW = 8  # tokens up to which a row is computed beside others: replies, with what a grammar forces or a draft guesses
_CALL_BYTES = 600_000  # of keys and values, which take as long to read as one more call takes
_TILE = 64  # queries of a chunk that are computed at once: each tile is spared the keys behind it

_Placed = tuple[int, Row]  # the row's first token among those of all rows, and the row


class SlotAttention:
    """What all layers of one forward pass share: masks, and where each row's KV goes.

    rows      those of one token first
    windows   of each layer, how many positions a query sees, its own included; None for all
    keys      [layers, slots, kv heads, head_dim, context]
    values    [layers, slots, kv heads, context, head_dim]

    A window is a matter of masks alone: slots and blocks keep what lies before it.
    """

    def __init__(self, rows: list[Row], windows: Sequence[int | None], keys: Tensor, values: Tensor) -> None:
        self._keys, self._values, self._windows = keys, values, windows
        placed = _placed(rows)
        few = [place for place in placed if place[1].count <= _FEW]
        self._token = torch.tensor([first + at for first, row in few for at in range(row.count)])
        self._slot = torch.tensor([row.slot for _, row in few for _ in range(row.count)])
        self._position = torch.tensor([row.start + at for _, row in few for at in range(row.count)])
        call = _CALL_BYTES // (2 * keys.shape[2] * keys.shape[3] * keys.element_size())
        self._runs = [_Run(run, keys.dtype) for run in adjacent(sorted(few, key=lambda place: place[1].slot), call)]
        self._chunks = [_Chunk(first, row, keys.dtype) for first, row in placed if row.count > _FEW]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See Attention."""
        keys, values, window = self._keys[layer], self._values[layer], self._windows[layer]
        if len(self._token) == len(q):
            keys[self._slot, :, :, self._position] = k
            values[self._slot, :, self._position] = v
            if self._runs[0].is_all(len(q)):
                return self._runs[0].mix(q, keys, values, window)
        elif self._runs:
            keys[self._slot, :, :, self._position] = k[self._token]
            values[self._slot, :, self._position] = v[self._token]
        mixed = torch.empty_like(q)
        for run in self._runs:
            mixed[run.tokens] = run.pick(run.mix(q[run.queries], keys, values, window))
        for chunk in self._chunks:
            chunk.mix(q, k, v, keys[chunk.slot], values[chunk.slot], window, mixed)
        return mixed


class _Run:
    """Rows of few tokens in slots that lie side by side; slots between them are computed too and thrown away.

    queries   int64 [slots * count], the token of each query; any token where there is no query
    tokens    int64, the tokens that are meant
    """

    def __init__(self, placed: list[_Placed], dtype: torch.dtype) -> None:
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


class _Chunk:
    """A row of many tokens, in tiles."""

    def __init__(self, first: int, row: Row, dtype: torch.dtype) -> None:
        self.slot = row.slot
        self._first, self._row, self._dtype = first, row, dtype
        self._tiles = [(at, min(at + _TILE, row.count)) for at in range(0, row.count, _TILE)]
        self._masks: dict[int | None, list[Tensor]] = {}

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, window: int | None, mixed: Tensor
    ) -> None:
        """Writes the row's KV into its slot, keys [kv heads, head_dim, context], and its part of `mixed`."""
        start, count, first = self._row.start, self._row.count, self._first
        keys[:, :, start : start + count] = k[first : first + count].permute(1, 2, 0)
        values[:, start : start + count] = v[first : first + count].transpose(0, 1)
        if window not in self._masks:
            self._masks[window] = [self._mask(at, end, window) for at, end in self._tiles]
        for (at, end), mask in zip(self._tiles, self._masks[window], strict=True):
            tile, total = slice(first + at, first + end), start + end
            mixed[tile] = prefill_attention(q[tile], keys[:, :, :total], values[:, :total], mask)

    def _mask(self, at: int, end: int, window: int | None) -> Tensor:
        """All queries of a tile see what lies before it, unless there is a window."""
        return causal_mask(0 if window is None else self._row.start + at, end - at, self._dtype, window)


def adjacent(placed: list[_Placed], call: int) -> list[list[_Placed]]:
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


def _placed(rows: list[Row]) -> list[_Placed]:
    placed, first = [], 0
    for row in rows:
        placed.append((first, row))
        first += row.count
    return placed
