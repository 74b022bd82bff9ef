"""What a model is, whatever kind of file says so."""

from dataclasses import dataclass

from worker.weights.errors import ModelError
from worker.weights.rope import Rope

_MOST = {
    "layers": 1024,
    "width": 1 << 17,
    "feed_forward": 1 << 20,
    "heads": 1024,
    "kv_heads": 1024,
    "head_dim": 1024,
    "vocabulary": 1 << 20,
    "context": 1 << 26,
}
"""Far above any real model: they keep a damaged file from asking for all memory, or for hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Dimensions and parts of a decoder of Llama's family. ModelError when they contradict each other.

    architecture   llama, mistral, qwen2 or qwen3
    vocabulary     rows of the embedding; a tokenizer may have fewer tokens
    context        the most positions that the model was made for
    windows        for each layer, how many positions a query sees, its own included; None for all
    qkv_bias, output_bias, mlp_bias   which projections add a bias
    qk_norm        whether each head of queries and keys is normalised before it is rotated
    tied           whether the head that predicts tokens is the embedding itself
    """

    architecture: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    epsilon: float
    rope: Rope
    windows: tuple[int | None, ...]
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise ModelError(f"the model's {name} is {getattr(self, name)}; from 1 to {most} is possible")
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} heads can't share {self.kv_heads} key and value heads evenly")
        if self.head_dim % 2:
            raise ModelError(f"a head of {self.head_dim} dimensions can't be rotated in pairs")
        if not 0 < self.epsilon < 1:
            raise ModelError(f"the model's epsilon is {self.epsilon}")
        if any(window is not None and window < 1 for window in self.windows):
            raise ModelError("a sliding window must be at least 1")
