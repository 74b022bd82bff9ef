"""What one thread of this machine can do at most: the measure of how much of a figure is left to gain."""

import time
from collections.abc import Callable

import torch

_SIZE = 1024
_READ = 64 << 20  # floats: more than any cache holds
_REPEATS = 7


def ceiling() -> dict[str, float]:
    """Billions of float32 operations a second of a square product, and gigabytes a second that are read from memory.

    Both by the thread's own processor time: what else runs takes nothing from them but shared caches and memory.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    a, b = torch.randn(2, _SIZE, _SIZE)
    long = torch.ones(_READ)
    found = {
        "gflops": round(2 * _SIZE**3 / _seconds(lambda: a @ b) / 1e9, 1),
        "read_gb_s": round(4 * _READ / _seconds(long.sum) / 1e9, 2),
    }
    torch.set_num_threads(threads)
    return found


def _seconds(work: Callable[[], object]) -> float:
    work()
    tries = []
    for _ in range(_REPEATS):
        began = time.thread_time()
        work()
        tries.append(time.thread_time() - began)
    return min(tries)
