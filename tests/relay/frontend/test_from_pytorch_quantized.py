"""Quantized modules of TorchScript, beside PyTorch's own kernels: at most a step apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao import quantization as q

from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.pytorch import from_pytorch

pytestmark = pytest.mark.filterwarnings("ignore")


class Sums(nn.Module):
    """Operators of quantized tensors between a convolution and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.quantize, self.dequantize = q.QuantStub(), q.DeQuantStub()
        self.conv, self.relu, self.dense = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Linear(32, 5)
        self.sums = nn.quantized.FloatFunctional()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.conv(self.quantize(x)))
        y = self.sums.add(y, y)
        y = nn.functional.adaptive_avg_pool2d(y, (2, 2)).flatten(1)
        # last: turned round, bytes exceed the seven bits whose products PyTorch's kernels sum exactly without VNNI
        made: torch.Tensor = self.dequantize(self.sums.mul_scalar(self.dense(y), -0.3))
        return made


def _imported(module: nn.Module, x: torch.Tensor) -> tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    script = torch.jit.trace(module, x).eval()
    mod, params = from_pytorch(script, [("x", tuple(x.shape))])
    found = relay.create_executor("graph", mod, target="llvm").evaluate()(x.numpy(), **params)
    return mod, found.numpy(), script(x).numpy()


@pytest.mark.parametrize("config", [q.default_qconfig, q.get_default_qconfig("fbgemm")], ids=["tensor", "channel"])
def test_operators_of_quantized_tensors(config: Any) -> None:
    torch.manual_seed(0)
    module, x = Sums().eval(), torch.rand(1, 3, 6, 6)
    module.qconfig = config
    q.prepare(module, inplace=True)
    module(x)
    q.convert(module, inplace=True)
    mod, found, expected = _imported(module, x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1.01 * float(module.dense.scale))
    assert "int8" in str(mod["main"])  # the weights are integers


def test_dense_layers_that_quantize_what_comes() -> None:
    torch.manual_seed(0)
    module = q.quantize_dynamic(nn.Sequential(nn.Linear(16, 8)).eval(), {nn.Linear}, dtype=torch.qint8)
    _, found, expected = _imported(module, torch.randn(4, 16))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_an_operator_that_is_not_there_is_named() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).sort()[0].dequantize()

    with pytest.raises(TilewrightError, match="aten::sort of quantized tensors"):
        from_pytorch(torch.jit.trace(function, torch.rand(4)), [("x", (4,))])
