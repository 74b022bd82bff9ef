import pytest

from tests.worker.kv.layouts import LAYOUTS, Fp8Pages, HalfSlots, Int8Slots, LayoutClass, TorchSlots


@pytest.fixture(params=[*LAYOUTS, TorchSlots, HalfSlots, Int8Slots, Fp8Pages])
def layout(request: pytest.FixtureRequest) -> LayoutClass:
    """In this room also the slots of torch, of halves, and KV as codes, one kind over each."""
    kind: LayoutClass = request.param
    return kind
