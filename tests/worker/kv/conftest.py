import pytest

from tests.worker.kv.layouts import LAYOUTS, LayoutClass


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> LayoutClass:
    kind: LayoutClass = request.param
    return kind
