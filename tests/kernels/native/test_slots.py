"""Attention over slots in C: against softmax in float64, and a token against itself in other company, bit by bit."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.native import SLOT_TILE, Native, SlotTask

SLOTS, KV_HEADS, MORE = 3, 2, 1
Places = list[tuple[int, int, int]]  # slot, start, count
dims = st.integers(1, 9).map(lambda eights: 8 * eights)
windows = st.none() | st.integers(1, 300)
dtypes = st.sampled_from([torch.float32, torch.float16])


class Slots:
    """Keys and values of some slots: numbers up to a length, and what is not a number behind it."""

    def __init__(self, dim: int, tiles: int, pitch: int, seed: int, dtype: torch.dtype = torch.float32) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        context = tiles * pitch
        self.keys = torch.full((SLOTS, KV_HEADS, tiles, dim, pitch), torch.nan, dtype=dtype)
        self.values = torch.full((SLOTS, KV_HEADS, context, dim), torch.nan, dtype=dtype)
        self.dim, self.context = dim, context

    def copy(self) -> "Slots":
        other = Slots(self.dim, 1, self.context, 0)
        other.keys, other.values = self.keys.clone(), self.values.clone()
        return other

    def columns(self, slot: int) -> Tensor:
        """Its keys, [kv heads, head_dim, context]."""
        return self.keys[slot].transpose(1, 2).flatten(2)

    def fill(self, slot: int, length: int) -> None:
        """With as much before a row of a batch begins."""
        keys = self.columns(slot).clone()
        keys[:, :, :length] = torch.randn(KV_HEADS, self.dim, length, generator=self.draw)
        self.keys[slot] = keys.view(KV_HEADS, self.dim, -1, self.keys.shape[-1]).transpose(1, 2)
        self.values[slot, :, :length] = torch.randn(KV_HEADS, length, self.dim, generator=self.draw)

    def drawn(self, tokens: int, shared: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of new tokens, which lie apart."""
        heads = KV_HEADS * shared
        q = scale * torch.randn(tokens, heads + MORE, self.dim, generator=self.draw)
        k, v = torch.randn(2, tokens, KV_HEADS + MORE, self.dim, generator=self.draw)
        return q[:, :heads], k[:, :KV_HEADS], v[:, :KV_HEADS]

    def attend(self, library: Native, places: Places, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed = torch.empty(q.shape)
        SlotTask(places, window).run(library, q, k, v, self.keys, self.values, mixed)
        return mixed


@st.composite
def steps(draw: st.DrawFn, context: int) -> Places:
    """Rows in different slots: some tokens each, from anywhere."""
    slots = draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=SLOTS, unique=True))
    places = []
    for slot in slots:
        start = draw(st.integers(0, context - 1))
        count = draw(st.just(1) | st.integers(1, 12) | st.integers(1, 150))
        places.append((slot, start, min(count, context - start)))
    return places


def expected(of: Slots, place: tuple[int, int], window: int | None, q: Tensor) -> Tensor:
    """What a query [heads, head_dim] at a slot's position sees, in float64."""
    slot, position = place
    seen = slice(0 if window is None else max(0, position + 1 - window), position + 1)
    keys, values = of.columns(slot)[:, :, seen].double(), of.values[slot, :, seen].double()
    shared = q.shape[0] // KV_HEADS
    weights = [(q[h].double() @ keys[h // shared] / math.sqrt(of.dim)).softmax(0) for h in range(len(q))]
    return torch.stack([weight @ values[h // shared] for h, weight in enumerate(weights)])


@settings(max_examples=60)
@given(
    data=st.data(),
    tiles=st.integers(1, 4),
    pitch=st.sampled_from([SLOT_TILE, 2 * SLOT_TILE]),
    shared=st.integers(1, 6),
    dim=dims,
    window=windows,
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    dtype=dtypes,
    seed=st.integers(0, 2**31),
)
def test_a_token_sees_itself_and_what_lies_before_as_far_as_its_window(
    data: st.DataObject,
    tiles: int,
    pitch: int,
    shared: int,
    dim: int,
    window: int | None,
    scale: float,
    dtype: torch.dtype,
    seed: int,
    library: Native,
) -> None:
    slots = Slots(dim, tiles, pitch, seed, dtype)
    places = data.draw(steps(slots.context))
    for slot, start, _ in places:
        slots.fill(slot, start)
    q, k, v = slots.drawn(sum(count for *_, count in places), shared, scale)
    mixed = slots.attend(library, places, window, q, k, v)
    tolerance = 2e-5 * max(1, scale / 3)  # a score is off by a share of its size, and so is a weight then
    token = 0
    for slot, start, count in places:
        keys = slots.columns(slot)
        assert torch.equal(keys[:, :, start : start + count], k[token : token + count].permute(1, 2, 0).to(dtype))
        assert torch.equal(
            slots.values[slot, :, start : start + count], v[token : token + count].transpose(0, 1).to(dtype)
        )
        for position in range(start, start + count, 1 + count // 20):
            at = token + position - start
            exact = expected(slots, (slot, position), window, q[at])
            torch.testing.assert_close(mixed[at].double(), exact, atol=tolerance, rtol=tolerance)
        token += count


@settings(max_examples=40)
@given(data=st.data(), shared=st.integers(1, 6), dim=dims, window=windows, dtype=dtypes, seed=st.integers(0, 2**31))
def test_a_token_gets_the_same_bits_alone_in_any_chunk_and_beside_others(
    data: st.DataObject, shared: int, dim: int, window: int | None, dtype: torch.dtype, seed: int, library: Native
) -> None:
    together = Slots(dim, 3, SLOT_TILE, seed, dtype)
    places = data.draw(steps(together.context))
    for slot, start, _ in places:
        together.fill(slot, start)
    apart = together.copy()
    q, k, v = together.drawn(sum(count for *_, count in places), shared)
    mixed = together.attend(library, places, window, q, k, v)
    first = 0
    for slot, start, count in places:
        at = 0
        while at < count:
            size = data.draw(st.just(1) | st.integers(1, count - at))
            part = slice(first + at, first + at + size)
            alone = apart.attend(library, [(slot, start + at, size)], window, q[part], k[part], v[part])
            assert torch.equal(alone, mixed[part])
            at += size
        first += count


def test_a_token_gets_the_same_bits_by_any_number_of_threads(library: Native) -> None:
    slots = Slots(64, 4, SLOT_TILE, 1)
    for slot, length in enumerate((300, 40, 7)):
        slots.fill(slot, length)
    q, k, v = slots.drawn(142, 3)
    places = [(0, 300, 140), (1, 40, 1), (2, 7, 1)]
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(slots.attend(library, places, None, q, k, v))
    torch.set_num_threads(before)
    assert torch.equal(*found)


@pytest.mark.parametrize("later", [1, 3, 40])
def test_what_is_no_number_spoils_nothing_that_came_before_it(later: int, library: Native) -> None:
    """Neither in its own sequence, where it may lie in the same tile, nor in another."""
    slots = Slots(16, 1, SLOT_TILE, 2)
    q, k, v = slots.drawn(60, 3)
    k[later], v[later] = torch.nan, torch.inf
    mixed = slots.attend(library, [(0, 0, 50), (1, 0, 10)], None, q, k, v)
    assert mixed[:later].isfinite().all()
    assert mixed[later:50].isnan().all()
    assert mixed[50:].isfinite().all()
