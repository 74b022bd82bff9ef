"""Tensor operations of the model's forward pass: in C or packed for the CPU, plain or in 8 bits for CUDA.

owns            packed matrices and how each is multiplied, 4- and 8-bit codes and the rotation before them, 8-bit codes
                of KV, RMS norm, rotary embedding, attention over slots and over blocks
does not own    what a block, a request or a tenant is; scheduling; weights on disk
front door      Linear and its products, in_groups, in_rows, in_float8_rows, compute_dtype, storage_of,
                RMSNorm, Rotary, rotate, gated, slots_attention, prefill_attention and their masks, write_blocks,
                paged_attention, visible_positions; codes_dtype, rounded, as_codes, as_values
"""

from kernels.attention import causal_mask, fold_mask, length_mask, prefill_attention, slots_attention
from kernels.codes import GroupCodes, RowCodes, in_float8_rows, in_groups, in_rows
from kernels.eightbits import Float8Product, RotatedInt8Product
from kernels.gate import gated
from kernels.kvcodes import KV_CODES, KVCodes, as_codes, as_values, codes_dtype, quantize, rounded
from kernels.linear import Linear
from kernels.norm import RMSNorm
from kernels.paged import paged_attention, visible_positions, write_blocks
from kernels.precision import STORAGES, Storage, compute_dtype, multiplies_float8, multiplies_float16, storage_of
from kernels.products import (
    CodesProduct,
    DenseProduct,
    FloatProduct,
    HalfProduct,
    Product,
    SideBySide,
)
from kernels.rotary import Rotary, rotate
from kernels.tiles import TiledProduct

__all__ = [
    "KV_CODES",
    "STORAGES",
    "CodesProduct",
    "DenseProduct",
    "Float8Product",
    "FloatProduct",
    "GroupCodes",
    "HalfProduct",
    "KVCodes",
    "Linear",
    "Product",
    "RMSNorm",
    "Rotary",
    "RotatedInt8Product",
    "RowCodes",
    "SideBySide",
    "Storage",
    "TiledProduct",
    "as_codes",
    "as_values",
    "causal_mask",
    "codes_dtype",
    "compute_dtype",
    "fold_mask",
    "gated",
    "in_float8_rows",
    "in_groups",
    "in_rows",
    "length_mask",
    "multiplies_float8",
    "multiplies_float16",
    "paged_attention",
    "prefill_attention",
    "quantize",
    "rotate",
    "rounded",
    "slots_attention",
    "storage_of",
    "visible_positions",
    "write_blocks",
]
