"""The weights of a GGUF file, under our names and in our order of rows."""

from pathlib import Path

import torch
from torch import Tensor

from worker.weights import inventory
from worker.weights.blocks import QuantBlocks
from worker.weights.gguf_config import ROPE_FACTORS, gguf_config
from worker.weights.gguf_file import GGUFFile

_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class GGUFWeights:
    """Weights (see worker/weights/source.py) of one file; `file` has what else it holds, its tokenizer for one.

    ModelError at once for an architecture, key or tensor that is missing or not supported.
    """

    def __init__(self, path: Path) -> None:
        self.file = GGUFFile(path)
        self.config = gguf_config(self.file)
        inventory.check(self.config, self._shapes(), _spell)

    @property
    def files(self) -> list[Path]:
        return [self.file.path]

    def tensor(self, name: str) -> Tensor:
        found, order = self.file.tensor(_spell(name)), self._order(name)
        return found if order is None else found[order]

    def blocks(self, name: str) -> QuantBlocks | None:
        found, order = self.file.blocks(_spell(name)), self._order(name)
        return found if found is None or order is None else found.rows(order)

    def _shapes(self) -> dict[str, inventory.Shape]:
        """Of all tensors: under our names those that we know, the others under their own."""
        ours = {_spell(name): name for name in inventory.expected(self.config)}
        infos = self.file.tensors.values()
        return {ours.get(info.name, info.name): info.shape for info in infos if info.name != ROPE_FACTORS}

    def _order(self, name: str) -> Tensor | None:
        """Where our rows lie in the file. Llama's converter puts the two rows of a rotary pair side by side."""
        if self.config.architecture != "llama":
            return None
        if ".q_proj." in name:
            return _half_split(self.config.heads, self.config.head_dim)
        return _half_split(self.config.kv_heads, self.config.head_dim) if ".k_proj." in name else None


def _half_split(heads: int, head_dim: int) -> Tensor:
    return torch.arange(heads * head_dim).view(heads, head_dim // 2, 2).transpose(1, 2).reshape(-1)


def _spell(name: str) -> str:
    """Our name -> the file's; a name that is not ours is given back."""
    stem, _, kind = name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.{kind}"
    parts = stem.split(".", 3)
    if len(parts) == 4 and parts[:2] == ["model", "layers"] and parts[3] in _INNER:
        return f"blk.{parts[2]}.{_INNER[parts[3]]}.{kind}"
    return name
