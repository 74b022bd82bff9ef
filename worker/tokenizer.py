"""The tokenizer that a GGUF file carries: as tokenizer.json for the gateway, as bytes per token for decoding here.

source   GGUF's tokenizer.ggml.* keys; pre-tokenizer patterns by name as llama.cpp publishes them; the byte alphabet is
         GPT-2's
"""

from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from worker.weights import GGUFFile, GGUFWeights, ModelError

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What decoding and stopping need to know of the tokens.

    texts        token id -> its bytes; control tokens have none, they are never shown
    control      token id -> its name, for tokens that only a template may write
    stop_ids     tokens that end a reply
    json         tokenizer.json
    """

    texts: list[bytes]
    control: dict[int, str]
    bos_id: int | None
    eos_id: int
    stop_ids: list[int]
    chat_template: str
    json: str

    def __len__(self) -> int:
        return len(self.texts)


def read_vocabulary(weights: GGUFWeights) -> Vocabulary:
    """The vocabulary of a model; ModelError when its tokenizer is of a kind that we do not read."""
    return read_metadata(weights.file)


def read_metadata(gguf: GGUFFile) -> Vocabulary:
    meta = gguf.metadata
    if meta.get("tokenizer.ggml.model") != "gpt2":
        raise ModelError(f"tokenizer {meta.get('tokenizer.ggml.model')!r} is not supported; byte-level BPE (gpt2) is")
    names: list[str] = meta.get("tokenizer.ggml.tokens") or []
    kinds: list[int] = meta.get("tokenizer.ggml.token_type") or [_NORMAL] * len(names)
    eos = meta.get("tokenizer.ggml.eos_token_id")
    if not names or eos is None:
        raise ModelError(f"metadata tokenizer.ggml.{'eos_token_id' if names else 'tokens'} is missing")
    if len(kinds) != len(names):
        raise ModelError("tokenizer.ggml.token_type does not name a type for each token")
    control = {index: names[index] for index, kind in enumerate(kinds) if kind == _CONTROL}
    extra = {index: names[index] for index, kind in enumerate(kinds) if kind == _USER_DEFINED}
    return Vocabulary(
        texts=[_bytes_of(index, name, control, extra) for index, name in enumerate(names)],
        control=control,
        bos_id=meta.get("tokenizer.ggml.bos_token_id"),
        eos_id=eos,
        stop_ids=_stop_ids(eos, meta.get("tokenizer.ggml.eot_token_id"), control),
        chat_template=meta.get("tokenizer.chat_template", ""),
        json=_tokenizer_json(gguf, names, control, extra),
    )


def _stop_ids(eos: int, eot: int | None, control: dict[int, str]) -> list[int]:
    ends = {index for index, name in control.items() if name in ("<|endoftext|>", "<|im_end|>", "<|eot_id|>")}
    return sorted({eos} | ends | ({eot} if eot is not None else set()))


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's reversible spelling of bytes as printable characters: character -> byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _bytes_of(index: int, name: str, control: dict[int, str], extra: dict[int, str]) -> bytes:
    if index in control:
        return b""
    if index in extra:
        return name.encode()
    try:
        return bytes(_ALPHABET[character] for character in name)
    except KeyError:
        raise ModelError(f"token {index} is not spelled in the byte alphabet") from None


def _tokenizer_json(gguf: GGUFFile, names: list[str], control: dict[int, str], extra: dict[int, str]) -> str:
    merges = [tuple(merge.split(" ", 1)) for merge in gguf.metadata.get("tokenizer.ggml.merges", [])]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = _pre_tokenizer(gguf.metadata.get("tokenizer.ggml.pre", "default"), byte_level)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control.values()])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in extra.values()])
    return tokenizer.to_str()


def _pre_tokenizer(kind: str, byte_level: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """How text is cut before merging; a name that we do not know is refused, since a guess gives other token ids."""
    if kind in ("gpt-2", "default"):
        return byte_level
    if kind == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    raise ModelError(f"pre-tokenizer {kind!r} is not supported")
