"""Where weights become linear layers: the one place that chooses how a matrix is packed."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from kernels import (
    CodesProduct,
    DenseProduct,
    Float8Product,
    FloatProduct,
    HalfProduct,
    Linear,
    Product,
    RotatedInt8Product,
    SideBySide,
    Storage,
    TiledProduct,
    in_float8_rows,
    in_groups,
    in_rows,
    multiplies_float16,
)
from kernels.native import native
from worker.kv.layout import CPU
from worker.weights import QuantBlocks, Tensors

_FILE: tuple[Storage, ...] = ("file", "file-a8")
_CODED: tuple[Storage, ...] = (*_FILE, "int8", "int4")
_GROUP = 32  # numbers that are brought to codes with one scale
_SIZES = (16, 32)  # numbers that may share one in the file


class Linears:
    """Linear layers of one model, for activations of one dtype.

    storage   what matrices are kept as. With file, file-a8, int8 and int4 the blocks of a quantised file stay as they
              are; what it has as plain numbers is kept in 16 bits, or brought to 8 or 4. The head is never brought to
              4: that would cost quality. With file-a8 activations are brought to 8 bits where codes have 4. fp8 and
              w8a8 leave the head as it is too, and a matrix of a shape that their kernel does not take
    tile      rows of every product in the deterministic mode whose results depend on how many there are; None for as
              many as there are
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

    def __call__(self, *names: str, bias: bool = False, fine: bool = False) -> Linear:
        """The projections of these names side by side in one layer: its output is theirs, one after another.

        names   without ".weight" and ".bias"
        bias    whether the projections have one each
        fine    activations are not brought to 8 bits, whatever the storage
        """
        added = [self._weights.tensor(f"{name}.bias").to(self._device, self._dtype) for name in names] if bias else []
        return Linear(self._product(names, fine=fine), torch.cat(added) if added else None)

    def head(self, name: str, kept: Tensor | None = None) -> Linear:
        """The projection onto the vocabulary.

        kept   the same matrix, if the model keeps it anyway: where nothing is packed, it is not kept twice
        """
        if kept is not None and self._device.type != "cpu":
            return Linear(DenseProduct(kept))
        if self._storage in _CODED:
            return Linear(self._coded([name], bring=self._storage == "int8", fine=True))
        return Linear(self._plain(self._tensor(name)))

    def _product(self, names: tuple[str, ...], *, fine: bool) -> Product:
        if self._storage in _CODED:
            return self._coded(names, bring=self._storage not in _FILE, fine=fine)
        weight = _joined([self._tensor(name) for name in names])
        if self._storage == "fp8" and Float8Product.holds(*weight.shape):
            return Float8Product(in_float8_rows(weight.to(self._device)))
        if self._storage == "w8a8" and RotatedInt8Product.holds(*weight.shape):
            return RotatedInt8Product(weight.to(self._device), self._dtype)
        return self._plain(weight)

    def _plain(self, weight: Tensor) -> Product:
        """In the dtype, or in 16 bits."""
        if self._device.type != "cpu":
            return DenseProduct(weight.to(self._device, self._dtype))
        halves = self._storage != "float32" and self._dtype == torch.float32
        if halves and multiplies_float16() and HalfProduct.holds(weight):
            return self._tiled(HalfProduct(weight))
        return self._tiled(FloatProduct(weight.to(self._dtype)))

    def _tiled(self, product: Product) -> Product:
        return product if self._tile is None else TiledProduct(product, self._tile)

    def _coded(self, names: Sequence[str], *, bring: bool, fine: bool) -> Product:
        """By their codes where they have some, or where plain numbers are brought to some."""
        found = [self._codes(name, bring=bring) for name in names]
        wide = 8 if self._storage == "file-a8" and not fine else 16
        blocks = [part for part in found if part is not None]
        if len(blocks) == len(found) and all(_alike(one, other) for one, other in pairwise(blocks)):
            return _by_codes(blocks, wide)
        products = [
            _by_codes([part], wide) if part is not None else self._plain(self._tensor(name))
            for name, part in zip(names, found, strict=True)
        ]
        return products[0] if len(products) == 1 else SideBySide(products)

    def _codes(self, name: str, *, bring: bool) -> QuantBlocks | None:
        blocks = self._weights.blocks(f"{name}.weight")
        if blocks is not None:
            return blocks if blocks.size in _SIZES else None
        weight = self._tensor(name)
        rows, columns = weight.shape
        if not bring or columns % _GROUP:
            return None
        if self._storage == "int4":
            groups = in_groups(weight, _GROUP)
            return QuantBlocks(groups.codes, groups.scale, groups.minimum, _GROUP, 4)
        codes = in_rows(weight.reshape(-1, _GROUP))
        return QuantBlocks(codes.codes.view(rows, columns), codes.scale.view(rows, -1), None, _GROUP, 8)

    def _tensor(self, name: str) -> Tensor:
        return self._weights.tensor(f"{name}.weight")


def _alike(one: QuantBlocks, other: QuantBlocks) -> bool:
    """Whether two matrices can be one for the kernel."""
    kinds = [(blocks.size, blocks.bits == 4, blocks.minimum is None) for blocks in (one, other)]
    return kinds[0] == kinds[1]


def _by_codes(parts: list[QuantBlocks], wide: int) -> Product:
    library = native()
    assert library is not None, "storage_of lets no codes be asked for without kernels in C"
    minimums = [part.minimum for part in parts if part.minimum is not None]
    return CodesProduct(
        library,
        _joined([part.codes if part.bits == 4 else part.codes.to(torch.int8) for part in parts]),
        _joined([part.scale for part in parts]),
        _joined(minimums) if minimums else None,
        wide,
    )


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
