"""Products of equally many rows each time, so that a row's result does not depend on how many others there are."""

import torch
from torch import Tensor

from kernels.products import Product


class TiledProduct:
    """Another product, given `tile` rows at a time, the last of them padded with zeros.

    Libraries choose by the number of rows how to cut a product up, and with that the order in which a row is added up.
    """

    def __init__(self, product: Product, tile: int) -> None:
        self._product = product
        self._tile = tile

    def __call__(self, x: Tensor) -> Tensor:
        rows = len(x)
        padded = torch.nn.functional.pad(x, (0, 0, 0, -rows % self._tile))
        parts = [padded[at : at + self._tile] for at in range(0, len(padded), self._tile)]
        return torch.cat([self._product(part) for part in parts])[:rows]
