"""The Llama architecture, read from a GGUF file, computing one step of a mixed batch."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, silu

from kernels import (
    Linear,
    Rotary,
    causal_mask,
    decode_attention,
    length_mask,
    prefill_attention,
    rms_norm,
    rotate,
)
from worker.gguf import GGUF, GGUFError
from worker.kv.slots import KVShape, Slots

_KV_FORMAT = "saltway-kv-1"  # part of the fingerprint: raise it when the same weights begin to give other KV


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


@dataclass(frozen=True, slots=True)
class Row:
    """The next `count` tokens of one sequence, at positions start .. start + count - 1 of its slot.

    wanted   whether the logits after the last of them are wanted; a prompt's earlier chunks need none
    """

    slot: int
    start: int
    count: int
    wanted: bool = True


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
        returns   float32 [wanted rows, vocabulary]
        """
        step = _Step(rows, slots, self._rotary)
        x = embedding(torch.tensor(tokens), self._embedding)
        for index, layer in enumerate(self._layers):
            x = x + layer.output(self._attend(index, layer, x, step))
            gate, up = layer.gate_up(rms_norm(x, layer.ffn_norm, self.config.epsilon)).chunk(2, dim=-1)
            x = x + layer.down(silu(gate) * up)
        if not len(step.wanted):
            return x.new_empty(0, self.config.vocabulary, dtype=torch.float32)
        return self._head(rms_norm(x[step.wanted], self._norm, self.config.epsilon)).float()

    def _attend(self, index: int, layer: _Layer, x: Tensor, step: "_Step") -> Tensor:
        config = self.config
        qkv = layer.qkv(rms_norm(x, layer.attention_norm, config.epsilon)).view(len(x), -1, config.head_dim)
        q, k, v = torch.split(qkv, [config.heads, config.kv_heads, config.kv_heads], dim=1)
        q, k = rotate(q, step.cos, step.sin), rotate(k, step.cos, step.sin)
        return step.attend(index, q, k, v).reshape(len(x), -1)

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


class _Step:
    """What all layers of one forward pass share: positions, masks, and where each row's KV goes."""

    def __init__(self, rows: list[Row], slots: Slots, rotary: Rotary) -> None:
        self._slots = slots
        self._singles = singles = [row for row in rows if row.count == 1]
        self._chunks = rows[len(singles) :]
        positions = torch.cat([torch.arange(row.start, row.start + row.count) for row in rows])
        self.cos, self.sin = rotary.at(positions)
        last = torch.tensor([row.count for row in rows]).cumsum(0) - 1
        self.wanted = last[torch.tensor([row.wanted for row in rows])]
        dtype = slots.shape.dtype
        self._masks = [causal_mask(row.start, row.count, dtype) for row in self._chunks]
        if singles:
            self._slot = torch.tensor([row.slot for row in singles])
            self._position = positions[: len(singles)]
            # Slots between the running ones are computed too and thrown away: adjacent slots are one view, and
            # gathering the busy ones would copy the cache at every layer.
            self._span = max(row.slot for row in singles) + 1
            lengths = torch.ones(self._span, dtype=torch.int64)
            lengths[self._slot] = self._position + 1
            self._length_mask = length_mask(lengths, int(lengths.max()), dtype)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Writes k and v [tokens, kv heads, head_dim] into the slots of a layer; returns [tokens, heads, head_dim]."""
        keys, values = self._slots.keys[layer], self._slots.values[layer]
        mixed = torch.empty_like(q)
        done = len(self._singles)
        if done:
            mixed[:done] = self._decode(q[:done], k[:done], v[:done], keys, values)
        for row, mask in zip(self._chunks, self._masks, strict=True):
            part, end = slice(done, done + row.count), row.start + row.count
            keys[row.slot, :, :, row.start : end] = k[part].permute(1, 2, 0)
            values[row.slot, :, row.start : end] = v[part].transpose(0, 1)
            mixed[part] = prefill_attention(q[part], keys[row.slot], values[row.slot], mask)
            done += row.count
        return mixed

    def _decode(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        keys[self._slot, :, :, self._position] = k
        values[self._slot, :, self._position] = v
        padded = q.new_zeros(self._span, *q.shape[1:])
        padded[self._slot] = q
        return decode_attention(padded, keys[: self._span], values[: self._span], self._length_mask)[self._slot]


def fingerprint(gguf: GGUF, dtype: torch.dtype) -> str:
    """Names the KV that this model computes: equal fingerprints mean equal KV for equal tokens.

    source   SHA-256 over the file, the dtype and the version of our KV format; 32 hex digits of it
    """
    digest = hashlib.sha256(f"{_KV_FORMAT}/{dtype}/".encode())
    with gguf.path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()[: math.ceil(128 / 4)]
