"""A model's dimensions from a Hugging Face config.json.

source   the configuration classes of transformers 4 and 5 for Llama, Mistral, Qwen2 and Qwen3, and their defaults
"""

from collections.abc import Mapping
from typing import Any

from worker.weights.config import ModelConfig
from worker.weights.errors import ModelError
from worker.weights.fields import Fields
from worker.weights.rope import Rope, Yarn, llama3, plain, yarn, yarn_amplitude

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
_FULL, _SLIDING = "full_attention", "sliding_attention"
_DEFAULT_WINDOW = 4096


def hf_config(values: Mapping[str, Any]) -> ModelConfig:
    """ModelError names what is missing or not supported."""
    fields = Fields(values, "config.json")
    architecture = fields.text("model_type")
    if architecture not in ARCHITECTURES:
        raise ModelError(f"architecture {architecture!r} is not supported; {', '.join(ARCHITECTURES)} are")
    _refuse_what_is_other(fields)
    heads, width = fields.size("num_attention_heads"), fields.size("hidden_size")
    head_dim = fields.size("head_dim", 128 if architecture == "qwen3" else width // heads)
    bias = architecture in ("llama", "qwen3") and fields.flag("attention_bias", False)
    return ModelConfig(
        architecture=architecture,
        layers=fields.size("num_hidden_layers"),
        width=width,
        feed_forward=fields.size("intermediate_size"),
        heads=heads,
        kv_heads=fields.size("num_key_value_heads", heads if architecture == "llama" else None),
        head_dim=head_dim,
        vocabulary=fields.size("vocab_size"),
        context=fields.integer("max_position_embeddings"),
        epsilon=fields.number("rms_norm_eps", 1e-6),
        rope=_rope(fields, head_dim),
        windows=_windows(fields, architecture),
        qkv_bias=bias or architecture == "qwen2",
        output_bias=bias,
        mlp_bias=architecture == "llama" and fields.flag("mlp_bias", False),
        qk_norm=architecture == "qwen3",
        tied=fields.flag("tie_word_embeddings", False),
    )


def _refuse_what_is_other(fields: Fields) -> None:
    quantised = fields.fields("quantization_config")
    if "quantization_config" in fields:
        method = quantised.text("quant_method", "unnamed")
        raise fields.refusal("quantization_config", f"names {method!r}; quantised folders are not supported")
    activation = fields.text("hidden_act", "silu")
    if activation != "silu":
        raise fields.refusal("hidden_act", f"is {activation!r}; only 'silu' is supported")
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        raise fields.refusal("partial_rotary_factor", "rotates a part of each head, which is not supported")


def _windows(fields: Fields, architecture: str) -> tuple[int | None, ...]:
    """How far each layer sees. In Mistral every layer slides; in Qwen those that its configuration names."""
    layers, first = fields.size("num_hidden_layers"), 0
    if architecture.startswith("qwen"):
        first = fields.integer("max_window_layers", 28) if fields.flag("use_sliding_window", False) else layers
    # A window of null means none, which is not the same as an absent one.
    if architecture == "llama" or fields.is_null("sliding_window"):
        first = layers
    kinds = [_SLIDING if layer >= first else _FULL for layer in range(layers)]
    if "layer_types" in fields:
        kinds = _layer_types(fields, kinds, architecture)
    window = fields.integer("sliding_window", _DEFAULT_WINDOW) if _SLIDING in kinds else None
    return tuple(window if kind == _SLIDING else None for kind in kinds)


def _layer_types(fields: Fields, derived: list[str], architecture: str) -> list[str]:
    """The listed kinds, where a model may list them: Qwen alone, and sliding ones only if its windows are in use."""
    listed = fields.texts("layer_types")
    for kind in listed:
        if kind not in (_FULL, _SLIDING):
            raise fields.refusal("layer_types", f"names {kind!r}, which is not supported")
    if len(listed) != len(derived):
        raise fields.refusal("layer_types", f"lists {len(listed)} layers; the model has {len(derived)}")
    listing = architecture.startswith("qwen") and (_SLIDING not in listed or fields.flag("use_sliding_window", False))
    if listed != derived and not listing:
        raise fields.refusal("layer_types", "contradicts the sliding window, which is not supported")
    return listed


def _rope(fields: Fields, head_dim: int) -> Rope:
    """transformers 5 keeps everything in rope_parameters, 4 had rope_theta and perhaps rope_scaling."""
    own = fields.fields("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
    kind = own.text("rope_type", own.text("type", "default"))
    if own.holds_objects():
        raise fields.refusal("rope_parameters", "differ between layers, which is not supported")
    if own.number("partial_rotary_factor", 1.0) != 1.0:
        raise own.refusal("partial_rotary_factor", "rotates a part of each head, which is not supported")
    base = own.number("rope_theta", fields.number("rope_theta", 10000.0))
    if kind == "default":
        return plain(base, head_dim)
    factor = own.number("factor")
    if kind == "linear":
        return plain(base, head_dim).linear(factor)
    if kind == "llama3":
        return _llama3(fields, own, plain(base, head_dim), factor)
    if kind == "yarn":
        return yarn(base, head_dim, _yarn(fields, own, factor))
    raise own.refusal("rope_type", f"{kind!r} is not supported; default, linear, llama3 and yarn are")


def _original(fields: Fields, own: Fields) -> int:
    """Tokens of context that the model was made with before it was stretched."""
    outer = fields.integer("original_max_position_embeddings", fields.integer("max_position_embeddings"))
    return own.integer("original_max_position_embeddings", outer)


def _llama3(fields: Fields, own: Fields, rope: Rope, factor: float) -> Rope:
    low, high = own.number("low_freq_factor"), own.number("high_freq_factor")
    return llama3(rope, factor, low, high, _original(fields, own))


def _yarn(fields: Fields, own: Fields, factor: float) -> Yarn:
    amplitude = own.number("attention_factor") if "attention_factor" in own else None
    scale, scale_all = own.number("mscale", 0.0), own.number("mscale_all_dim", 0.0)
    if amplitude is None and scale and scale_all:
        amplitude = yarn_amplitude(factor, scale) / yarn_amplitude(factor, scale_all)
    return Yarn(
        factor=factor,
        original=_original(fields, own),
        amplitude=amplitude,
        fast=own.number("beta_fast", 32.0),
        slow=own.number("beta_slow", 1.0),
        truncate=own.flag("truncate", True),
    )
