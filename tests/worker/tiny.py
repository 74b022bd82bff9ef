"""A small Llama with random weights, written as a GGUF file, so that engine tests take milliseconds."""

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
EOS = 2
LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 3, 64, 4, 2, 96, 4096
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30  # ggml types

# "Ġ" is a space and "Ċ" a line break in the byte alphabet of GPT-2. Each merge joins two earlier tokens.
_MERGES = """
t h|th e|i n|e r|a n|o n|Ġ t|Ġ a|Ġ th|Ġ the|r e|in g|o r|e n|Ġ s|Ġ w|l l|Ġ o|Ġ an|Ġan d|a t|i s|Ġ b|Ġ i|o u
" :|" }|" ,|" ]|} }|{ "|} ]|, Ġ|,Ġ "|t r|tr u|tru e|] }|} }}|Ċ Ċ|1 2
"""
MERGES = [merge for line in _MERGES.strip().splitlines() for merge in line.split("|")]

Value = bool | int | float | str | list[str] | list[int] | list[float]


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it lies in the file. shape is in torch order, rows first."""

    shape: tuple[int, ...]
    kind: int
    raw: bytes


def vocabulary() -> list[str]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*CONTROL, *letters, *dict.fromkeys("".join(merge.split(" ")) for merge in MERGES)]


def metadata() -> dict[str, Value]:
    """Of the tiny model."""
    names = vocabulary()
    return {
        "general.architecture": "llama",
        "general.alignment": 32,
        "llama.block_count": LAYERS,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.context_length": CONTEXT,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(names) - len(CONTROL)),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.chat_template": TEMPLATE,
    }


def f32(rng: np.random.Generator, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Stored:
    return Stored(shape, F32, (mean + scale * rng.standard_normal(shape)).astype("<f4").tobytes())


def q8_0(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Stored:
    """Blocks of a half-precision scale and 32 signed bytes; values spread evenly with the given deviation."""
    blocks = prod(shape) // 32
    raw = np.zeros((blocks, 34), dtype=np.uint8)
    raw[:, :2] = np.full((blocks, 1), scale / 73.6, dtype="<f2").view(np.uint8)
    raw[:, 2:] = rng.integers(-127, 128, (blocks, 32), dtype=np.int8).view(np.uint8)
    return Stored(shape, Q8_0, raw.tobytes())


def q4_1(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Stored:
    """Blocks of a scale, a minimum and 32 nibbles; values spread evenly around 0 with the given deviation."""
    blocks = prod(shape) // 32
    step = scale / 4.61
    raw = np.zeros((blocks, 20), dtype=np.uint8)
    raw[:, :2] = np.full((blocks, 1), step, dtype="<f2").view(np.uint8)
    raw[:, 2:4] = np.full((blocks, 1), -7.5 * step, dtype="<f2").view(np.uint8)
    raw[:, 4:] = rng.integers(0, 256, (blocks, 16), dtype=np.uint8)
    return Stored(shape, Q4_1, raw.tobytes())


def tensors(seed: int = 0) -> dict[str, Stored]:
    """Weights of the tiny model, strong enough that every token of the context moves the logits."""
    rng = np.random.default_rng(seed)
    head_dim = WIDTH // HEADS
    kv = KV_HEADS * head_dim
    found = {
        "token_embd.weight": q8_0(rng, len(vocabulary()), WIDTH),
        "output_norm.weight": f32(rng, WIDTH, scale=0.1, mean=1.0),
        "output.weight": q8_0(rng, len(vocabulary()), WIDTH, scale=0.3),
    }
    for layer in range(LAYERS):
        found |= {
            f"blk.{layer}.attn_norm.weight": f32(rng, WIDTH, scale=0.1, mean=1.0),
            f"blk.{layer}.attn_q.weight": q4_1(rng, WIDTH, WIDTH, scale=0.15),
            f"blk.{layer}.attn_k.weight": q4_1(rng, kv, WIDTH, scale=0.15),
            f"blk.{layer}.attn_v.weight": f32(rng, kv, WIDTH, scale=0.2),
            f"blk.{layer}.attn_output.weight": q4_1(rng, WIDTH, WIDTH, scale=0.2),
            f"blk.{layer}.ffn_norm.weight": f32(rng, WIDTH, scale=0.1, mean=1.0),
            f"blk.{layer}.ffn_gate.weight": q4_1(rng, FEED_FORWARD, WIDTH, scale=0.15),
            f"blk.{layer}.ffn_up.weight": q4_1(rng, FEED_FORWARD, WIDTH, scale=0.15),
            f"blk.{layer}.ffn_down.weight": q4_1(rng, WIDTH, FEED_FORWARD, scale=0.15),
        }
    return found


def write_tiny(path: Path, seed: int = 0) -> Path:
    return write_gguf(path, metadata(), tensors(seed))


def write_gguf(path: Path, entries: dict[str, Value], stored: dict[str, Stored], version: int = 3) -> Path:
    """source   the GGUF format of the ggml project: header, entries, tensor infos, padding, data at 32-byte steps"""
    header = b"GGUF" + struct.pack("<IQQ", version, len(stored), len(entries))
    header += b"".join(_string(key) + _value(value) for key, value in entries.items())
    data = b""
    for name, tensor in stored.items():
        dimensions = struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        header += _string(name) + struct.pack("<I", len(tensor.shape)) + dimensions
        header += struct.pack("<IQ", tensor.kind, len(data))
        data += _padded(tensor.raw)
    path.write_bytes(_padded(header) + data)
    return path


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 32)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
        case list():
            return struct.pack("<I", 9) + _array(value)


def _array(values: list[str] | list[int] | list[float]) -> bytes:
    if all(isinstance(value, int) for value in values):
        return struct.pack(f"<IQ{len(values)}i", 5, len(values), *values)
    if all(isinstance(value, float) for value in values):
        return struct.pack(f"<IQ{len(values)}f", 6, len(values), *values)
    return struct.pack("<IQ", 8, len(values)) + b"".join(_string(str(value)) for value in values)
