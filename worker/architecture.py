"""The dimensions of a model, as its file tells them."""

from dataclasses import dataclass
from typing import Any

from worker.gguf import GGUF, GGUFError


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Dimensions of a Llama model. head_dim * heads may differ from width only in other architectures."""

    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    rope_base: float
    epsilon: float

    @classmethod
    def of(cls, gguf: GGUF) -> "ModelConfig":
        """From GGUF metadata; GGUFError names what is missing or not supported."""
        architecture = gguf.metadata.get("general.architecture")
        if architecture != "llama":
            raise GGUFError(f"architecture {architecture!r} is not supported; llama is")
        if "llama.rope.scaling.type" in gguf.metadata or "rope_freqs.weight" in gguf.tensors:
            raise GGUFError("llama.rope.scaling is not supported")
        heads, width = int(_get(gguf, "attention.head_count")), int(_get(gguf, "embedding_length"))
        return cls(
            layers=int(_get(gguf, "block_count")),
            width=width,
            feed_forward=int(_get(gguf, "feed_forward_length")),
            heads=heads,
            kv_heads=int(gguf.metadata.get("llama.attention.head_count_kv", heads)),
            head_dim=int(gguf.metadata.get("llama.attention.key_length", width // heads)),
            vocabulary=len(gguf.metadata.get("tokenizer.ggml.tokens", ())) or int(_get(gguf, "vocab_size")),
            context=int(_get(gguf, "context_length")),
            rope_base=float(gguf.metadata.get("llama.rope.freq_base", 10000.0)),
            epsilon=float(_get(gguf, "attention.layer_norm_rms_epsilon")),
        )


def _get(gguf: GGUF, key: str) -> Any:
    value = gguf.metadata.get(f"llama.{key}")
    if value is None:
        raise GGUFError(f"metadata llama.{key} is missing")
    return value
