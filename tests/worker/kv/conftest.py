import pytest

from tests.worker.kv.layouts import LAYOUTS, Fp8Pages, Int8Slots, LayoutClass


@pytest.fixture(params=[*LAYOUTS, Int8Slots, Fp8Pages])
def layout(request: pytest.FixtureRequest) -> LayoutClass:
    kind: LayoutClass = request.param
    return kind
