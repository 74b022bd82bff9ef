"""Small random models of every architecture: computed by transformers, as a Hugging Face folder, as a GGUF file."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY, LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD = 288, 2, 64, 4, 2, 96
CONTEXT, ORIGINAL, WINDOW = 192, 32, 20
_COMMON = {
    "vocab_size": VOCABULARY,
    "num_hidden_layers": LAYERS,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": FEED_FORWARD,
    "max_position_embeddings": CONTEXT,
}


def _stretched(kind: str, **more: float) -> dict[str, Any]:
    own = {"rope_type": kind, "rope_theta": 10000.0, "factor": 6.0, "original_max_position_embeddings": ORIGINAL}
    return {"rope_parameters": own | more}


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied, with biases, of a longer base": (
        "llama",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        },
    ),
    "llama, with heads of their own size": ("llama", {"head_dim": 24}),
    "llama, stretched as llama 3": ("llama", _stretched("llama3", low_freq_factor=1.0, high_freq_factor=4.0)),
    "llama, stretched linearly": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "mistral": ("mistral", {"sliding_window": WINDOW, "tie_word_embeddings": False}),
    "mistral, without a window": ("mistral", {"sliding_window": None}),
    "mistral, stretched by yarn": ("mistral", {"sliding_window": None} | _stretched("yarn")),
    "qwen2": ("qwen2", {"tie_word_embeddings": True, "rms_norm_eps": 1e-6}),
    "qwen2, stretched by yarn": ("qwen2", _stretched("yarn", beta_fast=16.0, beta_slow=2.0)),
    "qwen2, with a window from the second layer on": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"head_dim": 24, "tie_word_embeddings": True}),
    "qwen3, with a window in the first layer, and biases": (
        "qwen3",
        {
            "head_dim": 16,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "qwen3, stretched by yarn": ("qwen3", {"head_dim": 32} | _stretched("yarn", attention_factor=1.2)),
}
"""What it is -> transformers' name of its class, and how its configuration differs from the common one."""


class Peer:
    """One of the kinds with random weights, strong enough that every token and every bias moves the logits."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        model_type, own = KINDS[kind]
        self.config: Any = AutoConfig.for_model(model_type, **_COMMON | own)
        models: Any = AutoModelForCausalLM
        self._model: Any = models.from_config(self.config, attn_implementation="eager").eval()
        draw = torch.Generator().manual_seed(seed)
        for name, weight in self._model.named_parameters():
            values = torch.randn(weight.shape, generator=draw)
            if weight.dim() == 2:
                values *= 0.25 if "embed" in name else 1.5 * weight.shape[1] ** -0.5
            elif name.endswith("bias"):
                values *= 0.5
            else:
                values = 1 + 0.2 * values
            weight.data = values

    def logits(self, tokens: list[int]) -> Tensor:
        """[tokens, vocabulary], in float32."""
        with torch.inference_mode():
            found: Tensor = self._model(torch.tensor([tokens])).logits[0]
        return found

    def write_folder(self, path: Path, shard: str = "1GB") -> Path:
        """shard   the most that one safetensors file may hold"""
        self._model.save_pretrained(path, max_shard_size=shard)
        return path

    def write_gguf(self, path: Path) -> Path:
        """As llama.cpp's converter writes it: Mistral as llama, and the q and k rows of llama in adjacent pairs."""
        config = self.config
        architecture = "llama" if config.model_type == "mistral" else config.model_type
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_key_length(self._head_dim)
        writer.add_value_length(self._head_dim)
        if config.model_type == "mistral" and config.sliding_window:
            writer.add_sliding_window(config.sliding_window)
        self._add_rope(writer)
        for name, weight in self._model.state_dict().items():
            if name != "lm_head.weight" or not config.tie_word_embeddings:
                writer.add_tensor(self._gguf_name(name), self._in_file_order(name, weight.numpy(), architecture))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    @property
    def _head_dim(self) -> int:
        return int(getattr(self.config, "head_dim", None) or WIDTH // HEADS)

    def _add_rope(self, writer: gguf.GGUFWriter) -> None:
        rope = self.config.rope_parameters
        writer.add_rope_freq_base(rope["rope_theta"])
        if rope["rope_type"] == "llama3":
            plain = rope["rope_theta"] ** (-np.arange(0, self._head_dim, 2) / self._head_dim)
            factors = plain / self._model.model.rotary_emb.inv_freq.numpy()
            writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
        elif rope["rope_type"] != "default":
            writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
            writer.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast") or 32.0)
            writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow") or 1.0)
            if "attention_factor" in rope:
                usual = 0.1 * np.log(rope["factor"]) + 1
                writer.add_rope_scaling_attn_factors(float(rope["attention_factor"] / usual))

    def _gguf_name(self, name: str) -> str:
        """By the package's own table of names."""
        table = gguf.get_tensor_name_map(
            getattr(gguf.MODEL_ARCH, self.config.model_type.upper().replace("MISTRAL", "LLAMA")), LAYERS
        )
        found = table.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        return found

    def _in_file_order(self, name: str, values: NDArray[np.float32], architecture: str) -> NDArray[np.float32]:
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
        if architecture != "llama" or heads is None:
            return values
        halves = values.reshape(heads, 2, self._head_dim // 2, -1)
        return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
