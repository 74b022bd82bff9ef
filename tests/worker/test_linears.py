"""How a model's matrices are packed, by what the file keeps them as and what was asked for."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernels import DenseProduct, Float8Product, Product, ProductByRows, RotatedInt8Product, Storage
from tests.worker.test_model import fresh
from worker.kv import SlotLayout
from worker.linears import Linears
from worker.model import Model, fingerprint
from worker.rows import Row
from worker.weights import QuantBlocks, open_weights

NEAR = 0.02  # of the largest output: what bfloat16 activations and scales cost


class Written:
    """Weights by name, as plain numbers or as blocks."""

    def __init__(self, **stored: Tensor | QuantBlocks) -> None:
        self._stored = stored

    def tensor(self, name: str) -> Tensor:
        found = self._stored[name.removesuffix(".weight")]
        return found.dequantize() if isinstance(found, QuantBlocks) else found

    def blocks(self, name: str) -> QuantBlocks | None:
        found = self._stored[name.removesuffix(".weight")]
        return found if isinstance(found, QuantBlocks) else None


def in_blocks(seed: int, rows: int, columns: int, bits: int = 4, size: int = 32) -> QuantBlocks:
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 1 << bits, (rows, columns), generator=draw, dtype=torch.uint8)
    scale = torch.rand(rows, columns // size, generator=draw) + 0.1
    return QuantBlocks(codes, scale, -scale * 2 ** (bits - 1), size, bits)


def codes_of(linears: Linears, *names: str) -> ProductByRows | None:
    """The product of a layer if it has codes beside its 16 bits."""
    product = linears(*names)._product
    return product if isinstance(product, ProductByRows) else None


def assert_near(found: Tensor, exact: Tensor) -> None:
    assert (found - exact).abs().max() <= NEAR * exact.abs().max()


def test_four_bit_blocks_are_packed_as_they_are_side_by_side() -> None:
    weights = Written(q=in_blocks(0, 32, 64), k=in_blocks(1, 16, 64))
    both = codes_of(Linears(weights, torch.float32, "int4"), "q", "k")
    assert both is not None
    x = torch.randn(3, 64)
    exact = x @ torch.cat((weights.tensor("q"), weights.tensor("k"))).T
    assert_near(both.few(x), exact)
    torch.testing.assert_close(both.many(x), exact, atol=0.05, rtol=1e-3)


def test_blocks_without_a_minimum_are_multiples_of_their_scale() -> None:
    blocks = in_blocks(0, 32, 64)
    weights = Written(a=QuantBlocks(blocks.codes, blocks.scale, None, 32, 4))
    found = codes_of(Linears(weights, torch.float32, "int4"), "a")
    assert found is not None
    x = torch.randn(3, 64)
    assert_near(found.few(x), x @ weights.tensor("a").T)


def test_plain_numbers_are_brought_to_four_bits() -> None:
    weights = Written(a=torch.randn(64, 128))
    found = codes_of(Linears(weights, torch.float32, "int4"), "a")
    assert found is not None
    x = torch.randn(3, 128)
    exact = x @ weights.tensor("a").T
    assert 0.01 < (found.few(x) - exact).std() / exact.std() < 0.15


@pytest.mark.parametrize(
    "stored",
    [
        {"a": in_blocks(0, 32, 64, bits=6, size=16)},  # would be rounded a second time
        {"a": in_blocks(0, 24, 64)},  # not a shape that the kernel takes
        {"a": torch.randn(32, 48)},
    ],
)
def test_what_does_not_fit_four_bits_stays_as_it_is(stored: dict[str, Tensor | QuantBlocks]) -> None:
    weights = Written(**stored)
    linears = Linears(weights, torch.float32, "int4")
    assert codes_of(linears, "a") is None
    x = torch.randn(3, weights.tensor("a").shape[1])
    assert_near(linears("a")(x), x @ weights.tensor("a").T)


def test_a_matrix_of_which_a_part_has_other_codes_stays_whole() -> None:
    weights = Written(q=in_blocks(0, 32, 64), v=torch.randn(32, 64), w=in_blocks(1, 32, 64, bits=8))
    linears = Linears(weights, torch.float32, "int4")
    assert codes_of(linears, "q", "v") is None
    assert codes_of(linears, "q", "w") is None


def test_the_head_is_never_brought_to_four_bits() -> None:
    weights = Written(head=torch.randn(64, 64))
    linears = Linears(weights, torch.float32, "int4")
    assert not isinstance(linears.head("head")._product, ProductByRows)


@pytest.mark.parametrize(("storage", "kind"), [("fp8", Float8Product), ("w8a8", RotatedInt8Product)])
def test_on_cuda_a_matrix_whose_shape_has_no_kernel_stays_whole_and_so_does_the_head(
    storage: Storage, kind: type[Product]
) -> None:
    weights = Written(
        a=torch.randn(32, 64), wide=torch.randn(32, 36), high=torch.randn(36, 64), head=torch.randn(32, 64)
    )
    linears = Linears(weights, torch.bfloat16, storage, device=torch.device("meta"))
    assert isinstance(linears("a")._product, kind)
    assert isinstance(linears("wide")._product, DenseProduct)
    assert isinstance(linears("high")._product, DenseProduct)
    assert isinstance(linears("a", "high")._product, DenseProduct)  # 68 rows together
    assert isinstance(linears.head("head")._product, DenseProduct)


@pytest.mark.parametrize("storage", ["float32", "float16", "int8", "int4"])
@pytest.mark.parametrize("rows", [1, 40])
def test_every_storage_multiplies_by_the_same_matrix(storage: Storage, rows: int) -> None:
    weights = Written(a=in_blocks(3, 48, 64), head=torch.randn(80, 64))
    linears = Linears(weights, torch.float32, storage)
    layer, head, x = linears("a"), linears.head("head"), torch.randn(rows, 64)
    linears.settle()
    assert_near(layer(x), x @ weights.tensor("a").T)
    assert_near(head(x), x @ weights.tensor("head").T)


def test_weights_that_float16_cannot_hold_stay_float32() -> None:
    weights = Written(a=torch.full((16, 32), 1e6))
    assert float(Linears(weights, torch.float32, "float16")("a")(torch.ones(1, 32))[0, 0]) == 32e6


def test_a_fingerprint_names_the_storage(tiny_path: Path) -> None:
    weights = open_weights(tiny_path)
    storages: list[Storage] = ["float32", "float16", "int8", "int4", "fp8", "w8a8"]
    assert len({fingerprint(weights, torch.float32, storage) for storage in storages}) == 6


def test_a_fingerprint_names_the_kind_of_device_but_not_which_of_them(tiny_path: Path) -> None:
    weights = open_weights(tiny_path)
    one, two, cpu = (
        fingerprint(weights, torch.bfloat16, "bfloat16", device=torch.device(name))
        for name in ("cuda:0", "cuda:1", "cpu")
    )
    assert one == two != cpu == fingerprint(weights, torch.bfloat16, "bfloat16")


@pytest.mark.parametrize(
    ("storage", "off"), [("float16", 0.005), ("int8", 0.1), ("int4", 0.1), ("fp8", 0.15), ("w8a8", 0.1)]
)
def test_a_model_says_nearly_the_same_whatever_it_is_kept_as(
    storage: Storage, off: float, tiny_path: Path, tiny_model: Model
) -> None:
    model = Model(open_weights(tiny_path), torch.float32, storage=storage)
    assert model.kv_shape == tiny_model.kv_shape
    for tokens in ([7], [5, 9, 200, 30, 31]):
        row = [Row(0, 0, len(tokens))]
        found, exact = (one.forward(tokens, row, fresh(one, SlotLayout)) for one in (model, tiny_model))
        assert 0 < (found - exact).std() < off * exact.std()


@pytest.mark.parametrize(("storage", "most"), [("fp8", 0.05), ("w8a8", 0.005)])
def test_the_codes_of_cuda_hardly_move_what_a_model_expects(
    storage: Storage, most: float, tiny_path: Path, tiny_model: Model
) -> None:
    """Kullback-Leibler divergence, in nats a token."""
    model, tokens = Model(open_weights(tiny_path), torch.float32, storage=storage), list(range(5, 69))
    found, exact = (
        one.forward(tokens, [Row(0, 0, 64, wanted=64)], fresh(one, SlotLayout)).log_softmax(-1)
        for one in (model, tiny_model)
    )
    assert 0 < float((exact.exp() * (exact - found)).sum()) / 64 < most


@pytest.mark.parametrize("storage", ["fp8", "w8a8"])
def test_what_a_model_with_codes_says_does_not_depend_on_the_batch(storage: Storage, tiny_path: Path) -> None:
    model = Model(open_weights(tiny_path), torch.float32, storage=storage)
    alone = model.forward([5, 9, 200], [Row(0, 0, 3)], fresh(model, SlotLayout))
    beside = model.forward(
        [7, *range(10, 40), 5, 9, 200], [Row(1, 0, 1), Row(2, 0, 30), Row(0, 0, 3)], fresh(model, SlotLayout)
    )
    torch.testing.assert_close(beside[2], alone[0], atol=0.05, rtol=0)
