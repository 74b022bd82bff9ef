"""Numbers of 16 bits, by the processor's own conversion and by the one for those that have none."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernels.native import compiler

_SOURCE = """
#include "lanes.h"
void widen(const uint16_t *from, float *to, long count) {
    for (long i = 0; i < count; i += 8) store(to + i, widened(from + i));
}
void narrow(const float *from, uint16_t *to, long count) {
    for (long i = 0; i < count; i += 8) store_halves(to + i, load(from + i));
}
"""


@pytest.fixture(scope="module", params=["-march=native", "-O1"], ids=["this processor", "any"])
def lanes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("lanes")
    (folder / "lanes.c").write_text(_SOURCE)
    headers, gcc = Path(compiler.__file__).parent, shutil.which("gcc")
    assert gcc is not None
    command = [gcc, "-O2", request.param, f"-I{headers}", "-shared", "-fPIC", "-w", "lanes.c", "-o", "lanes.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "lanes.so"))


def converted(call: object, x: Tensor, dtype: torch.dtype) -> Tensor:
    assert callable(call)
    found = torch.empty(x.shape, dtype=dtype)
    call(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(found.data_ptr()), ctypes.c_long(x.numel()))
    return found


def test_every_float16_is_widened_as_torch_does(lanes: ctypes.CDLL) -> None:
    halves = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)
    torch.testing.assert_close(
        converted(lanes.widen, halves, torch.float32), halves.float(), rtol=0, atol=0, equal_nan=True
    )


def test_numbers_are_rounded_to_the_nearest_and_never_become_endless(lanes: ctypes.CDLL) -> None:
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16).float()
    between = (every[:-1] + every[1:]) / 2
    numbers = torch.cat([every, between, torch.zeros(1), torch.randn(1 << 16) * 10 ** (torch.rand(1 << 16) * 16 - 10)])
    expected = numbers.clamp(-65504, 65504).half()
    found = converted(lanes.narrow, numbers, torch.float16)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert not found.isinf().any()
