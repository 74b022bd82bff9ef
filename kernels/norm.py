"""Root-mean-square normalisation."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / rms(x) * weight over the last dimension.

    x        [rows, d] or [rows, heads, d]; the mean of squares is taken in float32 whatever the dtype
    weight   [d], or [heads, d]
    source   Zhang and Sennrich, 2019; as in Llama
    """
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(epsilon))
    return (wide * scale).to(x.dtype) * weight
