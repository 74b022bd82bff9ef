"""Two small vocabularies, trained on a few lines without any cutting beforehand: merges run across words and digits."""

import json
from dataclasses import dataclass
from functools import cache

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.worker.tiny import Value

LINES = [
    "It's 12345 o'clock; they'll say WE'RE late, don't they?  Two  spaces\n\n\tand tabs\r\n",
    "def f(x1, x2):\n        return x1 ** 2 + 1000000 # 10,000.50 ½ ²\n",
    "Über naïve café — 東京タワー 2024年 🙂🙂 Ελλάδα Привет\n",
    "the other mother and father gathered there; whether or not, the then and the than",
] * 3


@dataclass(frozen=True, slots=True)
class Trained:
    """names by number, and merges in order."""

    names: list[str]
    merges: list[tuple[str, str]]


@cache
def byte_level() -> Trained:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    )
    return _trained(tokenizer)


@cache
def pieces() -> Trained:
    """As SentencePiece orders them: unknown, control, 256 bytes, merged pieces as learnt, single characters."""
    tokenizer = Tokenizer(models.BPE())
    marked = [line.replace(" ", "\u2581") for line in LINES]
    tokenizer.train_from_iterator(marked, trainers.BpeTrainer(vocab_size=500, show_progress=False))
    found = _trained(tokenizer)
    merged = [left + right for left, right in found.merges]
    single = [name for name in found.names if len(name) == 1]
    numbered = [f"<0x{byte:02X}>" for byte in range(256)]
    return Trained(["<unk>", "<s>", "</s>", *numbered, *dict.fromkeys(merged), *single], found.merges)


def byte_level_metadata(kind: str) -> dict[str, Value]:
    found = byte_level()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": kind,
        "tokenizer.ggml.tokens": found.names,
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in found.merges],
        "tokenizer.ggml.eos_token_id": 0,
    }


def piece_metadata() -> dict[str, Value]:
    names = pieces().names
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(rank) for rank in range(len(names) - 259)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(names) - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def _trained(tokenizer: Tokenizer) -> Trained:
    vocabulary = tokenizer.get_vocab()
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return Trained(sorted(vocabulary, key=vocabulary.__getitem__), [(left, right) for left, right in merges])
