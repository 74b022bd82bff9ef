"""Tensor operations of the model's forward pass, for the CPU in torch.

owns            packed linear layers, RMS norm, rotary embedding, attention over slots
does not own    what a block, a request or a tenant is; scheduling; weights on disk
front door      Linear, compute_dtype, rms_norm, Rotary, rotate, decode_attention, prefill_attention and their masks
"""

from kernels.attention import causal_mask, decode_attention, length_mask, prefill_attention
from kernels.linear import Linear, compute_dtype
from kernels.norm import rms_norm
from kernels.rotary import Rotary, rotate

__all__ = [
    "Linear",
    "Rotary",
    "causal_mask",
    "compute_dtype",
    "decode_attention",
    "length_mask",
    "prefill_attention",
    "rms_norm",
    "rotate",
]
