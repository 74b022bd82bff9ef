"""What KV is kept as, by its name."""

from dataclasses import replace
from typing import Final

import torch

from kernels import KV_CODES
from worker.kv.shape import KVShape

KINDS: Final = ("auto", "float32", "float16", *KV_CODES)


def kept_as(choice: str, shape: KVShape, *, computed_in_c: bool) -> KVShape:
    """The shape of KV that is kept as asked.

    choice          one of KINDS. auto is float16 where kernels in C attend over slots, which then read half as much,
                    and elsewhere the dtype that is computed in
    shape           of KV in the dtype that is computed in
    computed_in_c   see SlotLayout.computed_in_c
    errors          ValueError for what can't be had here

    What float16 can't hold becomes the largest that it can: 65,504.
    """
    for codes in KV_CODES:
        if choice == codes:
            return shape.coded(codes)
    if choice == "float16" and not computed_in_c:
        raise ValueError("kv-dtype float16 needs slots on a CPU, dtype float32 and kernels in C; use auto")
    if choice == "float32" and shape.dtype != torch.float32:
        raise ValueError("kv-dtype float32 needs dtype float32")
    halves = choice == "float16" or (choice == "auto" and computed_in_c)
    return replace(shape, dtype=torch.float16) if halves else shape
