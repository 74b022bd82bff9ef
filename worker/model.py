"""The Llama architecture, read from a GGUF file, computing one step of a mixed batch."""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, silu

from kernels import Linear, Rotary, rms_norm, rotate
from worker.architecture import ModelConfig
from worker.attending import SlotAttention
from worker.gguf import GGUF
from worker.kv.slots import KVShape, Slots
from worker.rows import Row, positions_of, wanted_of

_KV_FORMAT = "saltway-kv-1"  # part of the fingerprint: raise it when the same weights begin to give other KV


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    qkv: Linear
    output: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear


class Model:
    """Weights and the forward pass.

    errors   GGUFError at load for an architecture, tensor or storage type that is not supported, with its name
    """

    def __init__(self, gguf: GGUF, dtype: torch.dtype) -> None:
        self.config = config = ModelConfig.of(gguf)
        self.dtype = dtype
        self._embedding = gguf.tensor("token_embd.weight").to(dtype)
        self._layers = [self._load_layer(gguf, index) for index in range(config.layers)]
        self._norm = gguf.tensor("output_norm.weight").to(dtype)
        tied = "output.weight" not in gguf.tensors
        self._head = Linear(self._embedding if tied else gguf.tensor("output.weight"), dtype)
        self._rotary = Rotary(config.head_dim, config.context, config.rope_base, dtype)

    @property
    def kv_shape(self) -> KVShape:
        return KVShape(self.config.layers, self.config.kv_heads, self.config.head_dim, self.dtype)

    @torch.inference_mode()
    def forward(self, tokens: list[int], rows: list[Row], slots: Slots) -> Tensor:
        """Computes the rows' tokens, writes their KV into their slots, and returns the wanted logits.

        tokens    the rows' tokens, one row after another
        rows      rows of one token first
        returns   float32 [wanted, vocabulary], row after row
        """
        attention = SlotAttention(rows, slots)
        angles = self._rotary.at(positions_of(rows))
        x = embedding(torch.tensor(tokens), self._embedding)
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, angles)
            x = x + layer.output(attention.attend(index, q, k, v).reshape(len(x), -1))
            gate, up = layer.gate_up(rms_norm(x, layer.ffn_norm, self.config.epsilon)).chunk(2, dim=-1)
            x = x + layer.down(silu(gate) * up)
        wanted = wanted_of(rows)
        if not len(wanted):
            return x.new_empty(0, self.config.vocabulary, dtype=torch.float32)
        return self._head(rms_norm(x[wanted], self._norm, self.config.epsilon)).float()

    def _project(self, layer: _Layer, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the rows, [tokens, heads or kv heads, head_dim]."""
        config = self.config
        qkv = layer.qkv(rms_norm(x, layer.attention_norm, config.epsilon)).view(len(x), -1, config.head_dim)
        q, k, v = torch.split(qkv, [config.heads, config.kv_heads, config.kv_heads], dim=1)
        return rotate(q, *angles), rotate(k, *angles), v

    def _load_layer(self, gguf: GGUF, index: int) -> _Layer:
        config = self.config

        def weight(name: str) -> Tensor:
            return gguf.tensor(f"blk.{index}.{name}.weight")

        q, k = _half_split(weight("attn_q"), config.heads), _half_split(weight("attn_k"), config.kv_heads)
        return _Layer(
            attention_norm=weight("attn_norm").to(self.dtype),
            qkv=Linear(torch.cat((q, k, weight("attn_v"))), self.dtype),
            output=Linear(weight("attn_output"), self.dtype),
            ffn_norm=weight("ffn_norm").to(self.dtype),
            gate_up=Linear(torch.cat((weight("ffn_gate"), weight("ffn_up"))), self.dtype),
            down=Linear(weight("ffn_down"), self.dtype),
        )


def _half_split(weight: Tensor, heads: int) -> Tensor:
    """Rows of a q or k projection, from GGUF's order (rotary pairs adjacent) to half-split (half a head apart)."""
    rows, width = weight.shape
    return weight.view(heads, rows // heads // 2, 2, width).transpose(1, 2).reshape(rows, width)


def fingerprint(gguf: GGUF, dtype: torch.dtype) -> str:
    """Names the KV that this model computes: equal fingerprints mean equal KV for equal tokens.

    source   SHA-256 over the file, the dtype and the version of our KV format; 32 hex digits of it
    """
    digest = hashlib.sha256(f"{_KV_FORMAT}/{dtype}/".encode())
    with gguf.path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()[: math.ceil(128 / 4)]
