"""Attention of single tokens over slots in C, against softmax in float64."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.native import Native, SlotTask

SLOTS, KV_HEADS = 3, 2
contexts = st.sampled_from([8, 20, 129, 300, 520])


def attended(
    library: Native, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, sees: list[tuple[int, int, int]]
) -> Tensor:
    slot, begin, end = (torch.tensor(column) for column in zip(*sees, strict=True))
    mixed = torch.empty(q.shape)
    SlotTask(slot, begin, end).run(library, q, k, v, keys, values, mixed)
    return mixed


@settings(max_examples=60)
@given(data=st.data(), context=contexts, shared=st.integers(1, 6), eights=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_a_token_sees_what_it_is_told_to_see(
    data: st.DataObject, context: int, shared: int, eights: int, seed: int, library: Native
) -> None:
    dim, draw = 8 * eights, torch.Generator().manual_seed(seed)
    tokens = data.draw(st.integers(1, 5))
    scale = data.draw(st.sampled_from([0.1, 1.0, 30.0]))
    keys = torch.full((SLOTS, KV_HEADS, dim, context), torch.nan)
    values = torch.full((SLOTS, KV_HEADS, context, dim), torch.nan)
    q = scale * torch.randn(tokens, KV_HEADS * shared, dim, generator=draw)
    k, v = torch.randn(2, tokens, KV_HEADS + 1, dim, generator=draw)[:, :, :KV_HEADS]
    sees = []
    for slot in data.draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=min(tokens, SLOTS), unique=True)):
        end = data.draw(st.integers(1, context))
        keys[slot, :, :, : end - 1] = torch.randn(KV_HEADS, dim, end - 1, generator=draw)
        values[slot, :, : end - 1] = torch.randn(KV_HEADS, end - 1, dim, generator=draw)
        sees.append((slot, data.draw(st.integers(0, end - 1)), end))
    q, k, v = q[: len(sees)], k[: len(sees)], v[: len(sees)]
    mixed = attended(library, q, k, v, keys, values, sees)
    for token, (slot, begin, end) in enumerate(sees):
        assert torch.equal(keys[slot, :, :, end - 1], k[token])
        assert torch.equal(values[slot, :, end - 1], v[token])
        for head in range(KV_HEADS * shared):
            seen = keys[slot, head // shared, :, begin:end].double(), values[slot, head // shared, begin:end].double()
            weights = (q[token, head].double() @ seen[0] / math.sqrt(dim)).softmax(0)
            torch.testing.assert_close(mixed[token, head].double(), weights @ seen[1], atol=2e-5, rtol=2e-5)


def test_a_token_gets_the_same_bits_beside_others_and_by_any_number_of_threads(library: Native) -> None:
    keys, values = torch.randn(SLOTS, KV_HEADS, 64, 400), torch.randn(SLOTS, KV_HEADS, 400, 64)
    q, k, v = torch.randn(3, 6, 64), torch.randn(3, KV_HEADS, 64), torch.randn(3, KV_HEADS, 64)
    sees = [(0, 0, 333), (1, 40, 400), (2, 0, 7)]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = attended(library, q, k, v, keys, values, sees)
    finally:
        torch.set_num_threads(before)
    for token, one in enumerate(sees):
        part = slice(token, token + 1)
        assert torch.equal(attended(library, q[part], k[part], v[part], keys, values, [one]), together[part])


def test_values_that_are_no_numbers_spoil_their_own_token_only(library: Native) -> None:
    keys, values = torch.randn(2, 1, 8, 16), torch.randn(2, 1, 16, 8)
    keys[1, 0, :, 2] = torch.nan
    mixed = attended(
        library,
        torch.randn(2, 1, 8),
        torch.randn(2, 1, 8),
        torch.randn(2, 1, 8),
        keys,
        values,
        [(0, 0, 5), (1, 0, 5)],
    )
    assert mixed[0].isfinite().all()
    assert mixed[1].isnan().all()
