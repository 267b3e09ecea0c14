"""Programs of torch.export compute what eager torch does."""

import pytest
import torch
from torch import nn

import tilewright
from tilewright.ir.errors import TilewrightError


def agrees(module, *args, dynamic_shapes=None, others=(), rtol=1e-4, atol=1e-5):
    """Compile a module; compare it with eager for the example inputs and for others."""
    module = module.eval()
    model = tilewright.compile(module, args, dynamic_shapes=dynamic_shapes)
    for given in (args, *others):
        with torch.no_grad():
            expected = module(*given)
        torch.testing.assert_close(model(*given), expected, rtol=rtol, atol=atol)
    return model


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(13, 7), nn.ReLU(), nn.Linear(7, 3), nn.Softmax(-1))


def cnn():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5),
    )  # fmt: skip


BATCH = torch.export.Dim("batch", min=1, max=64)


def test_perceptron():
    agrees(mlp(), torch.randn(2, 13))


def test_convolutional_network():
    agrees(cnn(), torch.randn(2, 3, 17, 19))


def test_dimension_keeps_its_name_and_bounds():
    model = agrees(mlp(), torch.randn(2, 13), dynamic_shapes=({0: BATCH},), others=[(torch.randn(1, 13),)])
    assert model.dimensions == {"batch": (1, 64, 1)}
    assert model.inputs["input"].shape == ("batch", 13)


def test_convolutional_network_of_any_batch():
    others = [(torch.randn(n, 3, 17, 19),) for n in (1, 5)]
    agrees(cnn(), torch.randn(2, 3, 17, 19), dynamic_shapes=({0: BATCH},), others=others)


def test_file_of_an_exported_program(tmp_path):
    module, x = mlp().eval(), torch.randn(2, 13)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "mlp.pt2")
    torch.testing.assert_close(tilewright.compile(tmp_path / "mlp.pt2")(x), module(x))


def test_file_that_is_cut_off(tmp_path):
    path = tmp_path / "mlp.pt2"
    torch.export.save(torch.export.export(mlp().eval(), (torch.randn(2, 13),)), path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(TilewrightError, match=r"mlp\.pt2: no program of torch\.export\.save, or cut off"):
        tilewright.compile(path)


def test_module_in_training_mode():
    with pytest.raises(TilewrightError, match=r"the module Sequential is in training mode; call \.eval\(\)"):
        tilewright.compile(cnn(), (torch.randn(2, 3, 17, 19),))


def test_module_without_example_inputs():
    with pytest.raises(TilewrightError, match="the module Sequential needs example inputs"):
        tilewright.compile(mlp().eval())


def test_limits_of_a_dimension_that_does_not_exist():
    with pytest.raises(TilewrightError, match="no input has a dimension 'rows'; the named dimensions are: batch"):
        tilewright.compile(mlp().eval(), (torch.randn(2, 13),), dynamic_shapes=({0: BATCH},), dims={"rows": 3})
