import pytest
import torch

from kernels.native import Native, native

torch.set_num_threads(1)  # small tensors: a second thread costs more than it does


@pytest.fixture(scope="session")
def library() -> Native:
    found = native()
    assert found is not None, "these tests need a C compiler: install gcc"
    return found
