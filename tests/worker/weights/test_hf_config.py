"""config.json: what it says of a model in either version, and what is refused with its name."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoConfig

from worker.weights import ModelError
from worker.weights.hf_config import hf_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "vocab_size": 300,
    "max_position_embeddings": 128,
}
MISTRAL = LLAMA | {"model_type": "mistral", "num_key_value_heads": 2}
QWEN2 = LLAMA | {"model_type": "qwen2", "num_key_value_heads": 2}
QWEN3 = QWEN2 | {"model_type": "qwen3"}
SLIDES = {"use_sliding_window": True, "sliding_window": 8}


def test_what_is_not_said_is_as_in_transformers() -> None:
    config = hf_config(LLAMA)
    theirs: Any = AutoConfig.for_model(**LLAMA)
    assert (config.kv_heads, config.head_dim, config.epsilon) == (4, 16, theirs.rms_norm_eps)
    assert (config.tied, config.qkv_bias, config.mlp_bias, config.windows) == (False, False, False, (None,) * 3)
    assert hf_config(QWEN3).head_dim == AutoConfig.for_model(**QWEN3).head_dim == 128
    assert hf_config(MISTRAL).windows == (AutoConfig.for_model(**MISTRAL).sliding_window,) * 3


def test_rotary_parameters_are_read_as_either_version_writes_them() -> None:
    scaling = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    five = LLAMA | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **scaling}}
    four = LLAMA | {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **scaling}}
    older = LLAMA | {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert hf_config(four).rope == hf_config(five).rope
    assert hf_config(older).rope.frequencies[0] == 0.5
    assert hf_config(LLAMA | {"rope_scaling": None}).rope == hf_config(LLAMA).rope


@pytest.mark.parametrize(
    ("values", "windows"),
    [
        (MISTRAL | {"sliding_window": 8}, (8, 8, 8)),
        (MISTRAL | {"sliding_window": None}, (None,) * 3),
        (QWEN2 | {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 1}, (None,) * 3),
        (QWEN2 | SLIDES | {"max_window_layers": 1}, (None, 8, 8)),
        (QWEN2 | SLIDES | {"max_window_layers": 3}, (None,) * 3),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}, (None,) * 3),
        (QWEN3 | SLIDES | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}, (8, None, 8)),
        (QWEN3 | {"layer_types": ["full_attention"] * 3}, (None,) * 3),
        (LLAMA | {"sliding_window": 8}, (None,) * 3),
    ],
)
def test_windows_are_those_of_each_layer(values: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert hf_config(values).windows == windows


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "config.json model_type is missing"),
        ({"model_type": "gemma3"}, "'gemma3' is not supported; llama, mistral, qwen2, qwen3 are"),
        (LLAMA | {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (LLAMA | {"quantization_config": {"quant_method": "fp8"}}, "names 'fp8'; quantised folders"),
        (LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "'gptq'"),
        (LLAMA | {"quantization_config": {"quant_method": "awq"}}, "'awq'"),
        (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor rotates a part"),
        (LLAMA | {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic' is not supported"),
        (LLAMA | {"rope_scaling": {"type": "longrope", "factor": 2.0}}, "'longrope' is not supported"),
        (LLAMA | {"rope_scaling": {"type": "linear"}}, "rope_scaling factor is missing"),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor is 0.5"),
        (LLAMA | {"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 0.0}}, "betas of 1e-06 or more"),
        (LLAMA | {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differ between layers"),
        (LLAMA | {"rope_theta": 1}, "the base is 1.0"),
        (LLAMA | {"layer_types": ["full_attention"]}, "lists 1 layers; the model has 3"),
        (LLAMA | {"layer_types": ["chunked_attention"] * 3}, "'chunked_attention', which is not supported"),
        (LLAMA | {"layer_types": ["sliding_attention"] * 3}, "contradicts the sliding window"),
        (QWEN3 | {"sliding_window": 8, "layer_types": ["sliding_attention"] * 3}, "contradicts the sliding window"),
        (MISTRAL | {"sliding_window": 0}, "sliding window must be at least 1"),
        (MISTRAL | {"num_key_value_heads": None}, "num_key_value_heads is missing"),
        (LLAMA | {"num_hidden_layers": "3"}, "num_hidden_layers is '3', not an integer"),
        (LLAMA | {"num_hidden_layers": True}, "num_hidden_layers is True"),
        (LLAMA | {"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000; from 1"),
        (LLAMA | {"hidden_size": 0}, "hidden_size is 0"),
        (LLAMA | {"rms_norm_eps": "small"}, "rms_norm_eps is 'small', not a number"),
        (LLAMA | {"rms_norm_eps": 0}, "epsilon is 0"),
        (LLAMA | {"attention_bias": 1}, "attention_bias is 1, not true or false"),
        (LLAMA | {"num_key_value_heads": 3}, "4 heads can't share 3"),
        (LLAMA | {"head_dim": 15}, "15 dimensions can't be rotated"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_name(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        hf_config(values)


strange = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()) | st.just({"a": 1})
)


numbers = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 0.5, 5e-324, 1e29, 10**400])


@given(
    kind=st.sampled_from(["linear", "llama3", "yarn"]),
    own=st.dictionaries(
        st.sampled_from(
            ["factor", "rope_theta", "original_max_position_embeddings", "attention_factor", "mscale", "mscale_all_dim"]
        )
        | st.sampled_from(["low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"]),
        numbers,
    ),
)
@example(kind="yarn", own={"original_max_position_embeddings": 10**400})
@example(kind="llama3", own={"original_max_position_embeddings": 10**400})
@example(kind="yarn", own={"beta_slow": 5e-324})
@example(kind="yarn", own={"rope_theta": 0})
def test_rotary_parameters_are_read_or_refused(kind: str, own: dict[str, float]) -> None:
    plausible = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 1e4}
    try:
        rope = hf_config(LLAMA | {"rope_parameters": {"rope_type": kind} | plausible | own}).rope
    except ModelError as error:
        assert str(error)  # noqa: PT017
    else:
        assert all(0 <= frequency <= 1 for frequency in rope.frequencies)


@given(st.data())
def test_anything_else_is_read_or_refused(data: st.DataObject) -> None:
    keys = [
        *LLAMA,
        "rope_scaling",
        "rope_parameters",
        "layer_types",
        "sliding_window",
        "head_dim",
        "tie_word_embeddings",
    ]
    values = MISTRAL | {data.draw(st.sampled_from(keys)): data.draw(strange)}
    try:
        assert hf_config(values).layers <= 1024
    except ModelError as error:
        assert str(error)  # noqa: PT017
