"""All layers in one call, against the same layers one after another: the same bits."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels import CodesProduct, Linear, RMSNorm, Rotary, SideBySide, gated, in_groups, in_rows, rotate
from kernels.native import CodedLayer, CodedLayers, CodedLinear, Native, SlotTask, SlotTasks

SLOTS, CONTEXT, LAYERS, EPSILON = 3, 64, 3, 1e-5
HEADS, KV_HEADS, DIM, WIDTH, HIDDEN = 4, 2, 16, 64, 96
PANEL = 64


@dataclass(frozen=True, slots=True)
class Layer:
    attention_norm: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm | None
    output: Linear
    ffn_norm: RMSNorm
    gate_up: Linear
    down: Linear

    def coded(self) -> CodedLayer:
        qkv, output, gate_up, down = map(coded, (self.qkv, self.output, self.gate_up, self.down))
        qk_norm = None if self.qk_norm is None else self.qk_norm.weight
        return CodedLayer(self.attention_norm.weight, qkv, qk_norm, output, self.ffn_norm.weight, gate_up, down)


def product(library: Native, outputs: int, inputs: int) -> CodesProduct:
    found = in_groups(torch.randn(outputs, inputs) / inputs**0.5)
    return CodesProduct(library, found.codes, found.scale, found.minimum)


def in_8_bits(library: Native, outputs: int, inputs: int) -> CodesProduct:
    found = in_rows(torch.randn(outputs * inputs // 16, 16) / inputs**0.5)
    return CodesProduct(library, found.codes.view(outputs, inputs), found.scale.view(outputs, -1))


def linear(library: Native, outputs: int, inputs: int, *, bias: bool = False) -> Linear:
    return Linear(product(library, outputs, inputs), torch.randn(outputs) if bias else None)


def coded(of: Linear) -> CodedLinear:
    assert of.coded is not None
    return of.coded


def norm(*shape: int) -> RMSNorm:
    return RMSNorm(1 + 0.1 * torch.randn(shape), EPSILON)


def layer(library: Native, *, bias: bool, qk_norm: bool, mixed: bool) -> Layer:
    outputs = (HEADS + 2 * KV_HEADS) * DIM
    kinds = SideBySide([product(library, PANEL, WIDTH), in_8_bits(library, outputs - PANEL, WIDTH)])
    return Layer(
        norm(WIDTH),
        Linear(kinds, torch.randn(outputs) if bias else None) if mixed else linear(library, outputs, WIDTH, bias=bias),
        norm(HEADS + KV_HEADS, DIM) if qk_norm else None,
        linear(library, WIDTH, HEADS * DIM, bias=bias),
        norm(WIDTH),
        linear(library, 2 * HIDDEN, WIDTH, bias=bias),
        linear(library, WIDTH, HIDDEN, bias=bias),
    )


def one_by_one(
    library: Native, layers: list[Layer], x: Tensor, angles: tuple[Tensor, Tensor], tasks: SlotTasks
) -> Tensor:
    x = x.clone()
    for index, (of, task) in enumerate(zip(layers, tasks.of_layers, strict=True)):
        qkv = of.qkv(of.attention_norm(x)).view(len(x), -1, DIM)
        qk, v = torch.split(qkv, [HEADS + KV_HEADS, KV_HEADS], dim=1)
        turned = rotate(qk if of.qk_norm is None else of.qk_norm(qk), *angles)
        q, k = torch.split(turned, [HEADS, KV_HEADS], dim=1)
        mixed = torch.empty(len(x), HEADS, DIM)
        task.run(library, q, k, v, tasks.keys[index], tasks.values[index], mixed)
        x += of.output(mixed.flatten(1))
        x += of.down(gated(of.gate_up(of.ffn_norm(x))))
    return x


@settings(max_examples=20)
@given(
    rows=st.lists(st.tuples(st.integers(0, CONTEXT - 40), st.sampled_from([1, 1, 3, 40])), min_size=1, max_size=SLOTS),
    windows=st.lists(st.sampled_from([None, 5]), min_size=LAYERS, max_size=LAYERS),
    bias=st.booleans(),
    qk_norm=st.booleans(),
    mixed=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_one_call_gives_the_bits_that_layer_by_layer_gives(
    library: Native,
    rows: list[tuple[int, int]],
    windows: list[int | None],
    bias: bool,
    qk_norm: bool,
    mixed: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    layers = [layer(library, bias=bias, qk_norm=qk_norm, mixed=mixed) for _ in range(LAYERS)]
    keys = torch.randn(LAYERS, SLOTS, KV_HEADS, 1, DIM, CONTEXT)
    values = torch.randn(LAYERS, SLOTS, KV_HEADS, CONTEXT, DIM)
    places = [(slot, start, count) for slot, (start, count) in enumerate(rows)]
    seen = {window: SlotTask(places, window) for window in set(windows)}
    tasks = SlotTasks(keys, values, [seen[window] for window in windows])
    positions = torch.cat([torch.arange(start, start + count) for start, count in rows])
    angles = Rotary([0.5**pair for pair in range(DIM // 2)], CONTEXT, torch.float32).at(positions)
    x = torch.randn(len(positions), WIDTH)
    apart = SlotTasks(keys.clone(), values.clone(), tasks.of_layers)
    expected = one_by_one(library, layers, x, angles, apart)
    packed = [one.coded() for one in layers]
    assert CodedLayers.takes(packed, DIM)
    CodedLayers(library, packed, HEADS, KV_HEADS, DIM, EPSILON).run(x, *angles, tasks)
    assert torch.equal(x, expected)
    assert torch.equal(keys, apart.keys)
    assert torch.equal(values, apart.values)


@pytest.mark.parametrize(("head_dim", "outputs"), [(DIM + 8, WIDTH), (DIM, WIDTH - 1)])
def test_sizes_that_the_kernels_do_not_know_are_not_taken(library: Native, head_dim: int, outputs: int) -> None:
    fits, other = coded(linear(library, WIDTH, WIDTH)), coded(linear(library, outputs, WIDTH))
    weight = torch.ones(WIDTH)
    assert not CodedLayers.takes([CodedLayer(weight, fits, None, fits, weight, fits, other)], head_dim)


def test_a_matrix_that_is_no_codes_is_not_for_one_call(library: Native) -> None:
    assert Linear(lambda x: x).coded is None
    assert Linear(SideBySide([product(library, PANEL, WIDTH), lambda x: x])).coded is None


def test_nor_are_more_matrices_side_by_side_than_queries_keys_and_values(library: Native) -> None:
    fits, weight = coded(linear(library, WIDTH, WIDTH)), torch.ones(WIDTH)
    three, four = (coded(Linear(SideBySide([product(library, PANEL, WIDTH)] * count))) for count in (3, 4))
    assert CodedLayers.takes([CodedLayer(weight, three, None, fits, weight, fits, fits)], DIM)
    assert not CodedLayers.takes([CodedLayer(weight, four, None, fits, weight, fits, fits)], DIM)
