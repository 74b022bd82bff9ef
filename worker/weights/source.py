"""The contract between a model's files and the model."""

from pathlib import Path
from typing import Protocol

from torch import Tensor

from worker.weights.blocks import QuantBlocks
from worker.weights.config import ModelConfig


class Tensors(Protocol):
    """Tensors by name, as numbers or as the blocks that they are stored in."""

    def tensor(self, name: str) -> Tensor:
        """A fresh copy, in its own dtype when that is float16, bfloat16 or float32; dequantised to float32 otherwise.

        ModelError when its storage type is not supported, or it holds what is no number.
        """

    def blocks(self, name: str) -> QuantBlocks | None:
        """The same tensor as its quantised blocks; None when it is stored as plain numbers."""


class Weights(Tensors, Protocol):
    """The weights of one model, under one naming whatever its files call them.

    Names are those of Hugging Face's Llama ("model.layers.0.self_attn.q_proj.weight"); matrices are [out, in], and the
    two dimensions of a rotary pair lie half a head apart. Every tensor of `inventory.expected(config)` is there, with
    its shape, and no other.
    """

    @property
    def config(self) -> ModelConfig: ...

    @property
    def files(self) -> list[Path]:
        """All files that decide which KV the model computes for given text, in a fixed order."""
