"""A column is zeros that can be written, and costs what is touched of it."""

import numpy as np
import psutil
import pytest

from cacheplane.column import column


@pytest.mark.parametrize("kind", [np.int64, np.uint32, np.uint8, np.bool_])
def test_a_column_is_zeros_that_can_be_written(kind: type[np.generic]) -> None:
    zeros = column(1_000, kind)
    assert (zeros.shape, zeros.dtype) == ((1_000,), np.dtype(kind))
    assert not zeros.any()
    zeros[500:] = kind(1)
    assert np.count_nonzero(zeros) == 500


def test_a_column_is_paid_for_page_by_page() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    zeros = column(1 << 28, np.int64)  # 2 GiB
    zeros[:: 1 << 22] = 1  # 64 places, none in the same huge page
    assert process.memory_info().rss - before < 16 << 20
