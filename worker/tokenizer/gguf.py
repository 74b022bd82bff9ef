"""The tokenizer that a GGUF file carries.

source   the tokenizer.ggml.* keys of the GGUF specification, and llama.cpp's token types
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models

from worker.tokenizer import spelling
from worker.tokenizer.pieces import piece_tokenizer
from worker.tokenizer.pretokenizers import pre_tokenizer
from worker.tokenizer.vocabulary import Vocabulary, stop_ids
from worker.weights import Fields, ModelError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_BYTE_LEVEL, _PIECES = "gpt2", "llama"


def read_metadata(meta: Mapping[str, Any], size: int) -> Vocabulary:
    """size   rows of the embedding, which may be more than the tokenizer has tokens"""
    fields = Fields(meta, "metadata", "tokenizer.ggml.")
    tokens = _Tokens(fields, size)
    ends = [_token_id(fields, f"{name}_token_id", size) for name in ("eos", "eot", "eom")]
    if ends[0] is None:
        raise fields.refusal("eos_token_id", "is missing")
    return Vocabulary(
        texts=[*map(tokens.text, range(len(tokens.names))), *[b""] * (size - len(tokens.names))],
        control=tokens.control,
        bos_id=_token_id(fields, "bos_token_id", size),
        eos_id=ends[0],
        stop_ids=stop_ids(ends, tokens.control),
        chat_template=Fields(meta, "metadata", "tokenizer.").text("chat_template", ""),
        json=tokens.tokenizer().to_str(),
    )


def _token_id(fields: Fields, key: str, size: int) -> int | None:
    if key not in fields:
        return None
    index = fields.integer(key)
    if not 0 <= index < size:
        raise fields.refusal(key, f"is {index}; the embedding has {size} rows")
    return index


class _Tokens:
    """The tokens of a file, by number. ModelError when they are of a kind that we don't read."""

    def __init__(self, fields: Fields, size: int) -> None:
        self._fields = fields
        self._model = fields.text("model")
        if self._model not in (_BYTE_LEVEL, _PIECES):
            raise ModelError(
                f"tokenizer {self._model!r} is not supported; byte-level BPE (gpt2) and SentencePiece BPE (llama) are"
            )
        self.names = fields.texts("tokens")
        if not 1 <= len(self.names) <= size:
            raise fields.refusal("tokens", f"has {len(self.names)} tokens, the embedding {size} rows")
        self._kinds = fields.integers("token_type") or [_NORMAL] * len(self.names)
        if len(self._kinds) != len(self.names):
            raise fields.refusal("token_type", "does not name a type for each token")
        self.control = self._of(_CONTROL) | self._of(_UNKNOWN)

    def text(self, index: int) -> bytes:
        kind, name = self._kinds[index], self.names[index]
        if kind in (_CONTROL, _UNKNOWN, _UNUSED):
            return b""
        if kind == _USER_DEFINED:
            return name.encode()
        if self._model == _PIECES:
            return spelling.sentencepiece(name)
        found = spelling.byte_level(name)
        if found is None:
            raise ModelError(f"token {index} is not spelled in the byte alphabet")
        return found

    def tokenizer(self) -> Tokenizer:
        try:
            tokenizer = self._byte_level() if self._model == _BYTE_LEVEL else self._pieces()
        except ModelError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"metadata tokenizer.ggml does not make a tokenizer: {str(error)[:200]}") from None
        added = [AddedToken(name, special=True, normalized=False) for name in self.control.values()]
        tokenizer.add_special_tokens(added)
        extra = self._of(_USER_DEFINED).values()
        tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in extra])
        return tokenizer

    def _of(self, kind: int) -> dict[int, str]:
        return {index: self.names[index] for index, found in enumerate(self._kinds) if found == kind}

    def _byte_level(self) -> Tokenizer:
        how = pre_tokenizer(self._fields.text("pre", "default"))
        pairs = [merge.partition(" ") for merge in self._fields.texts("merges")]
        merges = [(left, right) for left, _, right in pairs]
        vocabulary = {name: index for index, name in enumerate(self.names)}
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, fuse_unk=False, ignore_merges=how.ignore_merges))
        normalizer = how.normalizer()
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = how.build()
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def _pieces(self) -> Tokenizer:
        scores = self._fields.numbers("scores")
        unknown = self._of(_UNKNOWN)
        if len(scores) != len(self.names) or len(unknown) != 1 or len(self._of(_BYTE)) != 256:
            raise ModelError("a SentencePiece tokenizer needs a score for each token, one unknown token and 256 bytes")
        (name,) = unknown.values()
        prefix = self._fields.flag("add_space_prefix", True)
        return piece_tokenizer(self.names, scores, list(self._of(_NORMAL)), unknown=name, prefix=prefix)
