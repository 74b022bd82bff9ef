import pytest

from tests.worker.kv.layouts import LAYOUTS, Fp8Pages, Int8Slots, LayoutClass


@pytest.fixture(params=[*LAYOUTS, Int8Slots, Fp8Pages])
def layout(request: pytest.FixtureRequest) -> LayoutClass:
    """In this room also with KV as codes, one kind over each."""
    kind: LayoutClass = request.param
    return kind
