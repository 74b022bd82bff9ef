"""A model's dimensions from GGUF metadata.

source   the keys of the GGUF specification, as llama.cpp's converter writes them for Llama, Mistral, Qwen2 and Qwen3
"""

from worker.weights.config import ModelConfig
from worker.weights.errors import ModelError
from worker.weights.fields import Fields
from worker.weights.gguf_file import GGUFFile
from worker.weights.rope import Rope, Yarn, plain, yarn, yarn_amplitude

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Mistral's files call themselves llama."""

ROPE_FACTORS = "rope_freqs.weight"


def gguf_config(file: GGUFFile) -> ModelConfig:
    """ModelError names what is missing or not supported."""
    architecture = file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelError(f"architecture {architecture!r} is not supported in GGUF; {', '.join(ARCHITECTURES)} are")
    if file.metadata.get("split.count", 1) != 1:
        raise ModelError("a model split into several GGUF files is not supported; merge it with llama-gguf-split")
    fields = Fields(file.metadata, "metadata", f"{architecture}.")
    heads, width = fields.size("attention.head_count"), fields.size("embedding_length")
    layers = fields.size("block_count")
    head_dim = fields.size("attention.key_length", width // heads)
    _refuse_what_is_other(fields, head_dim)
    window = fields.integer("attention.sliding_window", 0) or None
    return ModelConfig(
        architecture=architecture,
        layers=layers,
        width=width,
        feed_forward=fields.size("feed_forward_length"),
        heads=heads,
        kv_heads=fields.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        vocabulary=_rows(file, "token_embd.weight"),
        context=fields.integer("context_length"),
        epsilon=fields.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(fields, file, head_dim),
        windows=(window,) * layers,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        tied="output.weight" not in file.tensors,
    )


def _rows(file: GGUFFile, name: str) -> int:
    if name not in file.tensors:
        raise ModelError(f"tensor {name} is missing")
    return file.tensors[name].shape[0]


def _refuse_what_is_other(fields: Fields, head_dim: int) -> None:
    """Keys that would change the computation in ways that we don't follow."""
    if fields.integer("expert_count", 0):
        raise fields.refusal("expert_count", "names experts, which are not supported")
    if fields.integer("rope.dimension_count", head_dim) != head_dim:
        raise fields.refusal("rope.dimension_count", "rotates a part of each head, which is not supported")
    if fields.integer("attention.value_length", head_dim) != head_dim:
        raise fields.refusal("attention.value_length", "differs from key_length, which is not supported")
    if fields.number("rope.scale_linear", 1.0) != 1.0:
        raise fields.refusal("rope.scale_linear", "is not supported")
    for key in ("attention.scale", "attention.sliding_window_pattern"):
        if key in fields:
            raise fields.refusal(key, "is not supported")


def _rope(fields: Fields, file: GGUFFile, head_dim: int) -> Rope:
    rope = _scaled(fields, head_dim)
    if ROPE_FACTORS not in file.tensors:
        return rope
    factors = file.tensor(ROPE_FACTORS).flatten().tolist()
    if len(factors) != len(rope.frequencies) or min(factors) <= 0:
        raise ModelError(f"tensor {ROPE_FACTORS} does not hold a factor for each pair of a head")
    return rope.divided(factors)


def _scaled(fields: Fields, head_dim: int) -> Rope:
    base, kind = fields.number("rope.freq_base", 10000.0), fields.text("rope.scaling.type", "none")
    if kind == "none":
        return plain(base, head_dim)
    factor = fields.number("rope.scaling.factor")
    if kind == "linear":
        return plain(base, head_dim).linear(factor)
    if kind != "yarn":
        raise fields.refusal("rope.scaling.type", f"{kind!r} is not supported; linear and yarn are")
    return yarn(base, head_dim, _yarn(fields, factor))


def _yarn(fields: Fields, factor: float) -> Yarn:
    if fields.number("rope.scaling.yarn_ext_factor", 1.0) != 1.0 or "rope.scaling.yarn_log_multiplier" in fields:
        raise fields.refusal("rope.scaling", "has parameters of YaRN that are not supported")
    share = fields.number("rope.scaling.attn_factor", 1.0) * fields.number("rope.scaling.yarn_attn_factor", 1.0)
    return Yarn(
        factor=factor,
        original=fields.integer("rope.scaling.original_context_length", fields.integer("context_length")),
        amplitude=yarn_amplitude(factor) * share,
        fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
    )
