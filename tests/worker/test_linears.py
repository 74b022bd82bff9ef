"""How a model's matrices are packed, by what the file keeps them as and what was asked for."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernels import (
    CodesProduct,
    DenseProduct,
    Float8Product,
    FloatProduct,
    HalfProduct,
    Product,
    RotatedInt8Product,
    SideBySide,
    Storage,
    multiplies_float16,
)
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


def assert_near(found: Tensor, exact: Tensor) -> None:
    assert (found - exact).abs().max() <= NEAR * exact.abs().max()


@pytest.mark.parametrize("storage", ["file", "int8", "int4"])
@pytest.mark.parametrize(
    "stored",
    [
        {"q": in_blocks(0, 32, 64), "k": in_blocks(1, 16, 64)},
        {"q": in_blocks(0, 24, 64), "k": in_blocks(1, 16, 64, bits=6, size=16)},
        {"q": in_blocks(0, 32, 64), "k": in_blocks(1, 16, 64, bits=5)},
    ],
)
def test_blocks_of_the_file_are_multiplied_as_they_are_side_by_side(
    storage: Storage, stored: dict[str, Tensor | QuantBlocks]
) -> None:
    weights, x = Written(**stored), torch.randn(3, 64)
    exact = x.double() @ torch.cat((weights.tensor("q"), weights.tensor("k"))).T.double()
    found = Linears(weights, torch.float32, storage)("q", "k")(x).double()
    torch.testing.assert_close(found, exact, atol=2e-4 * float(exact.abs().max()), rtol=0)


def test_activations_are_brought_to_eight_bits_where_codes_have_four_and_no_layer_needs_more() -> None:
    weights, x = Written(a=in_blocks(0, 32, 64), b=in_blocks(0, 32, 64, bits=6)), torch.randn(3, 64)
    linears = Linears(weights, torch.float32, "file-a8")
    exact = x @ weights.tensor("a").T
    fine = Linears(weights, torch.float32, "file")("a")(x)
    assert 0.001 < (linears("a")(x) - exact).std() / exact.std() < 0.01
    assert torch.equal(linears("a", fine=True)(x), fine)
    assert torch.equal(linears.head("a")(x), fine)
    assert torch.equal(linears("b")(x), Linears(weights, torch.float32, "file")("b")(x))


def test_blocks_that_are_alike_are_one_matrix_and_others_are_not() -> None:
    weights = Written(
        q=in_blocks(0, 32, 64), k=in_blocks(1, 16, 64), v=in_blocks(2, 16, 64, bits=8), w=torch.ones(8, 64)
    )
    linears = Linears(weights, torch.float32, "file")
    assert isinstance(linears("q", "k")._product, CodesProduct)
    assert isinstance(linears("q", "k", "v")._product, SideBySide)
    assert isinstance(linears("q", "w")._product, SideBySide)
    assert isinstance(linears("w")._product, HalfProduct if multiplies_float16() else FloatProduct)


def test_blocks_without_a_minimum_are_multiples_of_their_scale() -> None:
    blocks = in_blocks(0, 32, 64)
    weights = Written(a=QuantBlocks(blocks.codes, blocks.scale, None, 32, 4))
    x = torch.randn(3, 64)
    assert_near(Linears(weights, torch.float32, "file")("a")(x), x @ weights.tensor("a").T)


@pytest.mark.parametrize(("storage", "least", "most"), [("int4", 0.01, 0.15), ("int8", 0.0005, 0.01)])
def test_plain_numbers_are_brought_to_codes(storage: Storage, least: float, most: float) -> None:
    weights, x = Written(a=torch.randn(64, 128)), torch.randn(3, 128)
    exact = x @ weights.tensor("a").T
    found = Linears(weights, torch.float32, storage)("a")(x)
    assert least < (found - exact).std() / exact.std() < most


@pytest.mark.parametrize("stored", [{"a": torch.randn(32, 48)}, {"a": in_blocks(0, 24, 64, size=64)}])
def test_what_the_kernel_does_not_take_is_no_codes(stored: dict[str, Tensor | QuantBlocks]) -> None:
    weights = Written(**stored)
    layer = Linears(weights, torch.float32, "int4")("a")
    assert not isinstance(layer._product, CodesProduct)
    x = torch.randn(3, weights.tensor("a").shape[1])
    assert_near(layer(x), x @ weights.tensor("a").T)


def test_the_head_is_never_brought_to_four_bits() -> None:
    weights = Written(head=torch.randn(64, 64), coded=in_blocks(0, 64, 64, bits=8))
    assert not isinstance(Linears(weights, torch.float32, "int4").head("head")._product, CodesProduct)
    assert isinstance(Linears(weights, torch.float32, "int4").head("coded")._product, CodesProduct)
    assert isinstance(Linears(weights, torch.float32, "int8").head("head")._product, CodesProduct)


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


@pytest.mark.parametrize("storage", ["float32", "float16", "file", "int8", "int4"])
@pytest.mark.parametrize("rows", [1, 40])
def test_every_storage_multiplies_by_the_same_matrix(storage: Storage, rows: int) -> None:
    weights = Written(a=in_blocks(3, 48, 64), head=torch.randn(80, 64))
    linears = Linears(weights, torch.float32, storage)
    layer, head, x = linears("a"), linears.head("head"), torch.randn(rows, 64)
    assert_near(layer(x), x @ weights.tensor("a").T)
    assert_near(head(x), x @ weights.tensor("head").T)


def test_weights_that_float16_cannot_hold_stay_float32() -> None:
    weights = Written(a=torch.full((16, 32), 1e6))
    assert float(Linears(weights, torch.float32, "float16")("a")(torch.ones(1, 32))[0, 0]) == 32e6


def test_a_fingerprint_names_the_storage(tiny_path: Path) -> None:
    weights = open_weights(tiny_path)
    storages: list[Storage] = ["float32", "float16", "file", "int8", "int4", "fp8", "w8a8"]
    assert len({fingerprint(weights, torch.float32, storage) for storage in storages}) == 7


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
