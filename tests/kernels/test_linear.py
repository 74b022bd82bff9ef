import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import Linear, compute_dtype

sizes = st.integers(1, 130)


@given(rows=sizes, wide=sizes, narrow=sizes, seed=st.integers(0, 2**31))
def test_a_linear_layer_is_x_times_w_transposed_plus_b(rows: int, wide: int, narrow: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    weight, x = torch.randn(wide, narrow, generator=draw), torch.randn(rows, narrow, generator=draw)
    bias = torch.randn(wide, generator=draw)
    layer = Linear(weight, torch.float32)
    assert (layer.out_features, layer.in_features) == (wide, narrow)
    product = x.double() @ weight.double().T
    torch.testing.assert_close(layer(x).double(), product, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(Linear(weight, torch.float32, bias)(x).double(), product + bias, atol=2e-4, rtol=1e-4)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    weight, x = torch.randn(96, 64), torch.randn(33, 64)
    layer = Linear(weight, torch.float32)
    whole = layer(x)
    for row in range(33):
        torch.testing.assert_close(layer(x[row : row + 1])[0], whole[row], atol=1e-5, rtol=0)


def test_a_view_with_strides_is_packed_like_its_copy() -> None:
    weight, x = torch.randn(64, 48), torch.randn(5, 64)
    assert torch.equal(Linear(weight.T, torch.float32)(x), Linear(weight.T.contiguous(), torch.float32)(x))


def test_float32_can_always_be_chosen_and_auto_is_one_of_the_two() -> None:
    assert compute_dtype("float32") == torch.float32
    assert compute_dtype("auto") in (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("capability", "auto"), [("AVX512", torch.bfloat16), ("AVX2", torch.float32)])
def test_bfloat16_needs_a_processor_that_multiplies_it(
    capability: str, auto: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert compute_dtype("auto") == auto
    if auto == torch.bfloat16:
        assert compute_dtype("bfloat16") == torch.bfloat16
    else:
        with pytest.raises(ValueError, match="AVX-512"):
            compute_dtype("bfloat16")


def test_another_dtype_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'float16'"):
        compute_dtype("float16")
