"""The weights of a Hugging Face folder: config.json and safetensors files, one or sharded.

source   the layout that transformers' save_pretrained writes: model.safetensors, or model.safetensors.index.json with a
         weight_map from tensor names to files beside it
"""

from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open
from torch import Tensor

from worker.weights import inventory
from worker.weights.blocks import QuantBlocks
from worker.weights.errors import ModelError
from worker.weights.hf_config import hf_config
from worker.weights.numbers import expect_numbers

_MAX_JSON = 64 << 20
_MAX_SHARDS = 4096
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_DTYPES = ("F32", "F16", "BF16")
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
"""What a folder may say of text; the tokenizer is read from these."""


class HFFolder:
    """Weights (see worker/weights/source.py) of one folder.

    ModelError at once for an architecture, key, tensor or dtype that is missing or not supported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = hf_config(self.json("config.json"))
        self._shards = {shard: _Shard(path / shard) for shard in self._shard_names()}
        self._places = {name: shard for shard in self._shards.values() for name in shard.shapes}
        if len(self._places) != sum(len(shard.shapes) for shard in self._shards.values()):
            raise ModelError(f"{path.name}: a tensor lies in two safetensors files")
        shapes = {name: shard.shapes[name] for name, shard in self._places.items() if not self._is_spare(name)}
        inventory.check(self.config, shapes, str)

    @property
    def files(self) -> list[Path]:
        text = [name for name in TEXT_FILES if (self.path / name).is_file()]
        return [self.path / name for name in ("config.json", *text, *sorted(self._shards))]

    def tensor(self, name: str) -> Tensor:
        return self._places[name].tensor(name)

    def blocks(self, name: str) -> QuantBlocks | None:  # noqa: ARG002
        return None

    def json(self, name: str) -> dict[str, Any]:
        """An object in a file of the folder. ModelError when it is missing, too large or not an object."""
        return read_json(self.path / name)

    def _shard_names(self) -> list[str]:
        if not (self.path / _INDEX).is_file():
            if not (self.path / _SINGLE).is_file():
                raise ModelError(_why_no_weights(self.path))
            return [_SINGLE]
        places = self.json(_INDEX).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise ModelError(f"{_INDEX} weight_map does not name a file for each tensor")
        names = sorted(set(places.values()))
        # A name is a file beside the index, never a path out of the folder.
        strange = [name for name in names if Path(name).name != name or Path(name).suffix != ".safetensors"]
        if strange:
            raise ModelError(f"{_INDEX} weight_map names {strange[0][:60]!r}, which is no safetensors file beside it")
        if not 1 <= len(names) <= _MAX_SHARDS:
            raise ModelError(f"{_INDEX} weight_map names {len(names)} files; from 1 to {_MAX_SHARDS} are possible")
        return names

    def _is_spare(self, name: str) -> bool:
        """Written by old versions, and computed or tied here: buffers of rotary embedding, and a head that is tied."""
        return name.endswith("rotary_emb.inv_freq") or (self.config.tied and name == "lm_head.weight")


class _Shard:
    """One safetensors file, mapped into memory; the library checks its header against its size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.is_file():
            raise ModelError(f"{path.name} is missing")
        open_file: Any = safe_open  # its stubs leave the types out
        try:
            self._file = open_file(path, framework="pt")
        except SafetensorError as error:
            raise ModelError(f"{path.name} is not a whole safetensors file: {str(error)[:200]}") from None
        slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
        self.shapes: dict[str, inventory.Shape] = {}
        for name, part in slices.items():
            if part.get_dtype() not in _DTYPES:
                raise ModelError(f"tensor {name} is stored as {part.get_dtype()}; {', '.join(_DTYPES)} are supported")
            self.shapes[name] = tuple(part.get_shape())

    def tensor(self, name: str) -> Tensor:
        found: Tensor = self._file.get_tensor(name)
        expect_numbers(name, found)
        return found


def read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_JSON:
            raise ModelError(f"{path.name} is larger than {_MAX_JSON >> 20} MiB")
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        raise ModelError(f"{path.name} is missing in {path.parent}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelError(f"{path.name} is not a JSON object: {error}") from None


def _why_no_weights(path: Path) -> str:
    for name in _PICKLES:
        if (path / name).is_file():
            return f"{name} is a pickle, which is never read; convert the folder to safetensors"
    return f"{path} holds no {_SINGLE} and no {_INDEX}"
