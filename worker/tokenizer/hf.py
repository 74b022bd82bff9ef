"""The tokenizer of a Hugging Face folder: tokenizer.json, and what the files beside it say of special tokens.

source   the layout of transformers' save_pretrained, versions 4 and 5
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from worker.tokenizer import spelling
from worker.tokenizer.vocabulary import Vocabulary, stop_ids
from worker.weights import HFFolder, ModelError

_MAX_TOKENIZER, _MAX_TEMPLATE = 64 << 20, 1 << 20
_DECODERS = ("Replace", "ByteFallback", "Fuse", "Strip")

Spell = Callable[[str], bytes | None]


def read_folder(folder: HFFolder, size: int) -> Vocabulary:
    """size   rows of the embedding, which may be more than the tokenizer has tokens"""
    text = _read_text(folder.path / "tokenizer.json", _MAX_TOKENIZER)
    tokens = _Tokens(folder, text, size)
    spell = _spelling(text)
    eos = tokens.eos_ids()
    control = tokens.control | {index: tokens.added[index] for index in eos if index in tokens.added}
    return Vocabulary(
        texts=[b"" if index in control else tokens.text(index, spell) for index in range(size)],
        control=control,
        bos_id=tokens.bos_id(),
        eos_id=eos[0],
        stop_ids=stop_ids(eos, control),
        chat_template=_chat_template(folder.path, tokens.settings.get("chat_template")),
        json=tokens.tokenizer.to_str(),
    )


class _Tokens:
    """The tokens of a folder, by number. ModelError when its files contradict each other.

    added      token id -> its text, for tokens that are matched before any merging
    control    those of them that only a template may write
    settings   tokenizer_config.json
    """

    def __init__(self, folder: HFFolder, text: str, size: int) -> None:
        self._folder = folder
        self._size = size
        self.tokenizer = _parse(text)
        largest = max(self.tokenizer.get_vocab().values(), default=-1)
        if not 0 <= largest < size:
            raise ModelError(f"tokenizer.json has {largest + 1} tokens, the embedding {size} rows")
        found = self.tokenizer.get_added_tokens_decoder()
        self.added = {index: token.content for index, token in found.items()}
        self.control = {index: token.content for index, token in found.items() if token.special}
        self.settings = self._optional("tokenizer_config.json")

    def text(self, index: int, spell: Spell) -> bytes:
        name = self.tokenizer.id_to_token(index)
        if name is None:
            return b""
        if index in self.added:
            return name.encode()
        found = spell(name)
        if found is None:
            raise ModelError(f"tokenizer.json: token {index} is not spelled in the byte alphabet")
        return found

    def bos_id(self) -> int | None:
        """As the tokenizer's settings say, where they may say that there is none; else as the model's do."""
        if "bos_token" in self.settings:
            return self._named("bos_token")
        ids = self._ids("config.json", "bos_token_id")
        return ids[0] if ids else None

    def eos_ids(self) -> list[int]:
        """Of all files; first the one that the tokenizer's settings name, which ends a turn."""
        named = self._named("eos_token")
        first = [] if named is None else [named]
        ids = [*first, *self._ids("config.json", "eos_token_id"), *self._ids("generation_config.json", "eos_token_id")]
        if not ids:
            raise ModelError("no eos token is named by tokenizer_config.json, config.json or generation_config.json")
        return list(dict.fromkeys(ids))

    def _named(self, key: str) -> int | None:
        value = self.settings.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        if text is None:
            return None
        index: int | None = self.tokenizer.token_to_id(text) if isinstance(text, str) else None
        if index is None:
            raise ModelError(f"tokenizer_config.json {key} is not a token of tokenizer.json")
        return index

    def _ids(self, file: str, key: str) -> list[int]:
        """One number, a list of them, or nothing."""
        value = self._optional(file).get(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(index) is int and 0 <= index < self._size for index in ids):
            raise ModelError(f"{file} {key} is not a token id, nor a list of them")
        return ids

    def _optional(self, file: str) -> dict[str, Any]:
        return self._folder.json(file) if (self._folder.path / file).is_file() else {}


def _parse(text: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"tokenizer.json is not a tokenizer: {str(error)[:200]}") from None
    # Left over from training, in some files: a prompt is neither cut nor filled up.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class _Model(msgspec.Struct):
    type: str = "BPE"


class _Described(msgspec.Struct):
    model: _Model
    decoder: dict[str, Any] | None = None


def _spelling(text: str) -> Spell:
    """How tokens are spelled, by the decoder that the file describes."""
    try:
        described = msgspec.json.decode(text, type=_Described)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelError(f"tokenizer.json: {error}") from None
    if described.model.type != "BPE":
        raise ModelError(f"tokenizer.json: a model of type {described.model.type!r} is not supported; BPE is")
    whole = described.decoder or {}
    parts = whole.get("decoders", []) if whole.get("type") == "Sequence" else [whole]
    kinds = [part.get("type") for part in parts]
    if "ByteLevel" in kinds:
        return spelling.byte_level
    if kinds == ["Metaspace"]:
        return partial(spelling.sentencepiece, space=str(whole.get("replacement", "\u2581")))
    if kinds and all(kind in _DECODERS for kind in kinds):
        return spelling.sentencepiece
    raise ModelError(f"tokenizer.json: a decoder of {', '.join(map(str, kinds))} is not supported")


def _chat_template(path: Path, setting: object) -> str:
    """A file of its own goes before the setting, which is one template, or several with names."""
    if (path / "chat_template.jinja").is_file():
        return _read_text(path / "chat_template.jinja", _MAX_TEMPLATE)
    if isinstance(setting, list):
        entries = [entry for entry in setting if isinstance(entry, dict)]
        setting = next((entry.get("template") for entry in entries if entry.get("name") == "default"), None)
    if setting is not None and not isinstance(setting, str):
        raise ModelError("tokenizer_config.json chat_template is not a template, nor a list of named ones")
    return setting or ""


def _read_text(path: Path, most: int) -> str:
    try:
        if path.stat().st_size > most:
            raise ModelError(f"{path.name} is larger than {most >> 20} MiB")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise ModelError(f"{path.name} is missing in {path.parent}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path.name} is not UTF-8 text") from None
