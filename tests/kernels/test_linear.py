import torch

from kernels import FloatProduct, Linear


def test_a_layer_is_its_product_plus_its_bias() -> None:
    weight, x, bias = torch.randn(96, 64), torch.randn(5, 64), torch.randn(96)
    product = FloatProduct(weight)
    assert torch.equal(Linear(product)(x), product(x))
    assert torch.equal(Linear(product, bias)(x), product(x) + bias)
