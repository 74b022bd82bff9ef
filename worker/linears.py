"""Where weights become linear layers: the one place that chooses how a matrix is packed."""

import torch
from torch import Tensor

from kernels import (
    DenseProduct,
    Float8Product,
    FloatProduct,
    GroupCodes,
    HalfProduct,
    Int4Product,
    Int8Product,
    Linear,
    Product,
    ProductByRows,
    RotatedInt8Product,
    Storage,
    TiledProduct,
    UnpackedProduct,
    in_float8_rows,
    in_groups,
    in_rows,
    multiplies_float16,
    settle,
)
from worker.kv.layout import CPU
from worker.weights import QuantBlocks, Tensors

_GROUP = 32  # values that share a scale and a minimum, in the file and in the kernel


class Linears:
    """Linear layers of one model, for activations of one dtype.

    storage   what matrices are kept as. int4 packs 4-bit blocks as the file has them, and quantises plain numbers
              itself; what the file keeps in other codes, and the head, stay as they are: coarser codes would cost
              quality. Beside its codes, int4 keeps each matrix in 16 bits for steps of many rows. fp8 and w8a8 leave
              the head as it is too, and a matrix of a shape that their kernel does not take
    tile      rows of every product in the deterministic mode; None for as many as there are
    device    where the layers compute. Packed matrices are the CPU's, fp8 and w8a8 anybody's; on any other device
              than the CPU all else is of the dtype itself
    """

    def __init__(
        self,
        weights: Tensors,
        dtype: torch.dtype,
        storage: Storage,
        tile: int | None = None,
        device: torch.device = CPU,
    ) -> None:
        self._weights = weights
        self._device = device
        self._tile = tile
        self._dtype = dtype
        self._storage = storage
        self._twice: dict[tuple[int, int], list[ProductByRows]] = {}

    def __call__(self, *names: str, bias: bool = False) -> Linear:
        """The projections of these names side by side in one layer: its output is theirs, one after another.

        names   without ".weight" and ".bias"
        bias    whether the projections have one each
        """
        weight = _joined([self._weights.tensor(f"{name}.weight") for name in names])
        added = [self._weights.tensor(f"{name}.bias").to(self._device, self._dtype) for name in names] if bias else []
        return Linear(self._tiled(self._product(names, weight)), torch.cat(added) if added else None)

    def head(self, name: str, kept: Tensor | None = None) -> Linear:
        """The projection onto the vocabulary.

        kept   the same matrix, if the model keeps it anyway: where nothing is packed, it is not kept twice
        """
        if kept is not None and self._device.type != "cpu":
            return Linear(DenseProduct(kept))
        return Linear(self._tiled(self._plain(self._weights.tensor(f"{name}.weight"))))

    def settle(self) -> dict[tuple[int, int], int]:
        """Measures, after the last layer was made, up to how many rows the codes are faster; by shape of matrix."""
        return {shape: settle(products, shape[1], self._dtype) for shape, products in self._twice.items()}

    def _tiled(self, product: Product) -> Product:
        return product if self._tile is None else TiledProduct(product, self._tile)

    def _product(self, names: tuple[str, ...], weight: Tensor) -> Product:
        if self._storage == "int4":
            return self._int4(names, weight)
        if self._storage == "fp8" and Float8Product.holds(*weight.shape):
            return Float8Product(in_float8_rows(weight.to(self._device)))
        if self._storage == "w8a8" and RotatedInt8Product.holds(*weight.shape):
            return RotatedInt8Product(weight.to(self._device), self._dtype)
        return self._plain(weight)

    def _plain(self, weight: Tensor) -> Product:
        """As the head is kept too: in the dtype, in 16 bits or, with int8 on the CPU, in rows of codes."""
        if self._device.type != "cpu":
            return DenseProduct(weight.to(self._device, self._dtype))
        if self._storage == "int8":
            return self._int8(weight)
        halves = self._storage == "float16" or (self._storage == "int4" and self._dtype == torch.float32)
        if halves and multiplies_float16() and HalfProduct.holds(weight):
            return HalfProduct(weight)
        return FloatProduct(weight.to(self._dtype))

    def _int8(self, weight: Tensor) -> Product:
        codes = in_rows(weight)
        many = UnpackedProduct(codes)
        return self._by_rows(Int8Product(codes), many, weight) if Int8Product.holds(*weight.shape) else many

    def _int4(self, names: tuple[str, ...], weight: Tensor) -> Product:
        many, codes = self._plain(weight), self._codes(names, weight)
        if codes is None or not Int4Product.holds(weight.shape[0], weight.shape[1], codes.size):
            return many
        return self._by_rows(Int4Product(codes), many, weight)

    def _codes(self, names: tuple[str, ...], weight: Tensor) -> GroupCodes | None:
        """The matrix in 4 bits, without a new rounding of what the file has rounded already; None if it has to be."""
        found = [self._weights.blocks(f"{name}.weight") for name in names]
        blocks = [part for part in found if part is not None]
        if not blocks and weight.shape[1] % _GROUP == 0:
            return in_groups(weight, _GROUP)
        if len(blocks) < len(names) or any(part.bits != 4 or part.size != _GROUP for part in blocks):
            return None
        return GroupCodes(
            torch.cat([part.codes for part in blocks]),
            torch.cat([part.scale for part in blocks]),
            torch.cat([_minimum(part) for part in blocks]),
            _GROUP,
        )

    def _by_rows(self, few: Product, many: Product, weight: Tensor) -> Product:
        product = ProductByRows(few, many)
        self._twice.setdefault((weight.shape[0], weight.shape[1]), []).append(product)
        return product


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _minimum(blocks: QuantBlocks) -> Tensor:
    return torch.zeros_like(blocks.scale) if blocks.minimum is None else blocks.minimum
