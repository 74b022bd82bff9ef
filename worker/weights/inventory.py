"""Which tensors a model must have, and none beside them."""

from collections.abc import Callable, Mapping

from worker.weights.config import ModelConfig
from worker.weights.errors import ModelError

Shape = tuple[int, ...]


def check(config: ModelConfig, found: Mapping[str, Shape], spell: Callable[[str], str]) -> None:
    """ModelError, with its name, for a tensor that is missing, of another shape, or that the model has no use for.

    A tensor that is there and isn't used would be an answer that is quietly wrong.

    spell   our name -> the file's own, for messages
    """
    wanted = expected(config)
    for name, shape in wanted.items():
        if name not in found:
            raise ModelError(f"tensor {spell(name)} is missing")
        if found[name] != shape:
            raise ModelError(f"tensor {spell(name)} is {list(found[name])}; the configuration says {list(shape)}")
    for name in found:
        if name not in wanted:
            raise ModelError(f"tensor {spell(name)} is not supported in architecture {config.architecture!r}")


def expected(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor of the model and its shape, rows first."""
    shapes: dict[str, Shape] = {
        "model.embed_tokens.weight": (config.vocabulary, config.width),
        "model.norm.weight": (config.width,),
    }
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocabulary, config.width)
    for layer in range(config.layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer(config).items()}
    return shapes


def _layer(config: ModelConfig) -> dict[str, Shape]:
    width, wide, inner = config.width, config.heads * config.head_dim, config.feed_forward
    narrow = config.kv_heads * config.head_dim
    projections = {
        "self_attn.q_proj": (wide, width, config.qkv_bias),
        "self_attn.k_proj": (narrow, width, config.qkv_bias),
        "self_attn.v_proj": (narrow, width, config.qkv_bias),
        "self_attn.o_proj": (width, wide, config.output_bias),
        "mlp.gate_proj": (inner, width, config.mlp_bias),
        "mlp.up_proj": (inner, width, config.mlp_bias),
        "mlp.down_proj": (width, inner, config.mlp_bias),
    }
    shapes: dict[str, Shape] = {"input_layernorm.weight": (width,), "post_attention_layernorm.weight": (width,)}
    for name, (rows, columns, bias) in projections.items():
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (rows,)
    if config.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
    return shapes
