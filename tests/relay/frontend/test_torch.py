"""Programs of torch.export compute what eager torch does."""

import importlib
import logging
import subprocess
import sys
import zipfile

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend import from_exported_program
from tilewright.runtime.error import TVMError


def agrees(module, *args, dynamic_shapes=None, others=(), rtol=1e-4, atol=1e-5):
    """Compile a module; compare it with eager for the example inputs and for others."""
    module = module.eval()
    model = tilewright.compile(module, args, dynamic_shapes=dynamic_shapes)
    for given in (args, *others):
        with torch.no_grad():
            expected = tree_leaves(module(*given))
        torch.testing.assert_close(tree_leaves(model(*given)), expected, rtol=rtol, atol=atol)
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


def test_a_file_is_imported_without_a_warning(tmp_path, recwarn):
    torch.export.save(torch.export.export(nn.ReLU(), (torch.randn(2),)), tmp_path / "relu.pt2")
    recwarn.clear()
    from_exported_program(tmp_path / "relu.pt2")
    assert not recwarn.list


def test_negative_numbers_are_not_counted():
    class Module(nn.Module):
        def forward(self, x):
            return torch.bincount(x)

    model = agrees(Module(), torch.tensor([1, 2, 2]))
    with pytest.raises(TVMError, match=r"aten\.bincount.*: the number -1 is out of range: expected 0"):
        model(torch.tensor([1, -1, 2]))


def test_file_that_is_cut_off(tmp_path):
    path = tmp_path / "mlp.pt2"
    torch.export.save(torch.export.export(mlp().eval(), (torch.randn(2, 13),)), path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(TilewrightError, match=r"mlp\.pt2: no program of torch\.export\.save, or cut off"):
        tilewright.compile(path)


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (lambda path: torch.save({"weight": torch.zeros(3)}, path), "it holds an object of torch.save; expected what"),
        (lambda path: torch.jit.script(nn.ReLU()).save(path), "it holds a TorchScript module; relay.*from_pytorch"),
        (lambda path: zipfile.ZipFile(path, "w").close(), "or cut off: its list of files is not its own"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_other_archives(tmp_path, save, message):
    path = tmp_path / "other.pt2"
    save(str(path))
    with pytest.raises(TilewrightError, match=rf"other\.pt2: .*{message}"):
        tilewright.compile(path)


def test_a_program_that_is_damaged_is_one_error_without_a_log(tmp_path, caplog):
    path, torn = tmp_path / "mlp.pt2", tmp_path / "torn.pt2"
    torch.export.save(torch.export.export(mlp().eval(), (torch.randn(2, 13),)), path)
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(torn, "w") as part:
        for name in whole.namelist():
            if "weights/weight_0" not in name:
                part.writestr(name, whole.read(name))
    with pytest.raises(TilewrightError, match=r"torn\.pt2: .*damaged: .*weight_0: file not found"):
        tilewright.compile(torn)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_program_whose_operators_torch_finds_wrong_is_one_error():
    program = torch.export.export(nn.MaxPool2d(2), (torch.randn(1, 3, 4, 4),))
    pool = next(node for node in program.graph.nodes if node.op == "call_function")
    pool.args = (pool.args[0], [2, -2])
    with pytest.raises(TilewrightError, match=r"torch finds an operator .*kernel_size=-2.*; in %max_pool2d"):
        tilewright.compile(program)


def test_module_in_training_mode():
    with pytest.raises(TilewrightError, match=r"the module Sequential is in training mode; call \.eval\(\)"):
        tilewright.compile(cnn(), (torch.randn(2, 3, 17, 19),))


@pytest.mark.parametrize("rate", [0.5, 0.0])
def test_functions_in_training_mode(rate):
    class Module(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, rate, training=self.training) + 1

    x = torch.randn(3)
    if rate:
        with pytest.raises(TilewrightError, match=r"the module Module is in training mode; call \.eval\(\)"):
            tilewright.compile(Module(), (x,))
    else:
        torch.testing.assert_close(tilewright.compile(Module(), (x,))(x), x + 1)


def test_module_without_example_inputs():
    with pytest.raises(TilewrightError, match="the module Sequential needs example inputs"):
        tilewright.compile(mlp().eval())


def test_limits_of_a_dimension_that_does_not_exist():
    with pytest.raises(TilewrightError, match="no input has a dimension 'rows'; the named dimensions are: batch"):
        tilewright.compile(mlp().eval(), (torch.randn(2, 13),), dynamic_shapes=({0: BATCH},), dims={"rows": 3})


class Of(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


SEQ = torch.export.Dim("seq", min=4, max=512)


@pytest.mark.parametrize(
    "network", [nn.LSTM(5, 7, 2, bidirectional=True, batch_first=True), nn.GRU(5, 7, 2), nn.RNN(5, 7)]
)
def test_recurrent_networks(network):
    agrees(Of(lambda x: network(x)), torch.randn(3, 2, 5))


def test_transformer_layer_of_any_batch_and_length():
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    shapes = ({0: BATCH, 1: SEQ},)
    model = agrees(layer, torch.randn(2, 5, 16), dynamic_shapes=shapes, others=[(torch.randn(3, 7, 16),)])
    assert model.dimensions == {"batch": (1, 64, 1), "seq": (4, 512, 1)}


def test_attention_whose_depth_has_a_name_scales_by_it():
    shapes = (({3: torch.export.Dim("depth", min=2, max=64)},) * 3,)
    tensors, others = ([torch.randn(2, 3, 5, size) for _ in range(3)] for size in (8, 5))
    agrees(Of(nn.functional.scaled_dot_product_attention), *tensors, dynamic_shapes=shapes, others=[tuple(others)])


def test_arithmetic_of_sizes():
    def function(x):
        rows = x.reshape(x.shape[0] * x.shape[1], -1).view(-1, 2, x.shape[2] // 2)
        return rows, torch.arange(x.shape[1]) + x.shape[0], x[:, -1], torch.ones(x.shape[1], x.shape[1]).tril()

    others = [(torch.randn(1, 4, 8),), (torch.randn(5, 7, 8),)]
    agrees(Of(function), torch.randn(2, 6, 8), dynamic_shapes=(({0: BATCH, 1: SEQ},),), others=others)


def test_parts_whose_sizes_are_data():
    def function(x, counts):
        parts = x.split(counts.tolist())
        return torch.cat([part * (i + 1) for i, part in enumerate(parts)])

    others = [(torch.randn(6, 3), torch.tensor(counts)) for counts in ([0, 6, 0], [1, 0, 5])]
    agrees(Of(function), torch.randn(6, 3), torch.tensor([1, 2, 3]), others=others)


def test_branch_is_taken_at_run_time():
    module = Of(lambda x: torch.cond(x.sum() > 0, lambda t: (t + 1,), lambda t: (t - 2,), (x,)))
    agrees(module, torch.full((3, 4), 1.0), others=[(torch.full((3, 4), -1.0),)])


def test_loops():
    from torch._higher_order_ops.map import map as mapped
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    def function(x, w):
        counted = while_loop(lambda k, t: k < 5, lambda k, t: (k + 1, t * 1.5), (torch.tensor(0), x))
        return *counted, mapped(lambda s, v: s @ v, x, w), *scan(lambda c, s: (c + s, c * s), torch.zeros(4, 5), x)

    agrees(Of(function), torch.randn(3, 4, 5), torch.randn(5, 2))


class Accumulator(nn.Module):
    """Sums what it is given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("past", torch.zeros(2, 3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.past.add_(x)
        self.calls.add_(1)
        return self.past * 2


def test_buffers_that_the_program_writes_are_state():
    module = Accumulator().eval()
    model = tilewright.compile(module, (torch.zeros(2, 3),))
    assert (list(model.inputs), len(model.outputs)) == (["x"], 1)
    for _ in range(3):
        x = torch.randn(2, 3)
        torch.testing.assert_close(model(x), module(x))
    assert model.state["calls"] == 3
    model.reset()
    assert model.state["calls"] == 0


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float16, 5e-3), (torch.bfloat16, 4e-2)])
def test_half_precision(dtype, rtol):
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).to(dtype)
    agrees(network, torch.randn(2, 8).to(dtype), rtol=rtol, atol=rtol)


def test_all_unsupported_operators_are_named_with_their_places():
    module = Of(lambda x: (torch.fft.rfft(x).cumsum(0).abs(), torch.linalg.svdvals(x)))
    with pytest.raises(TilewrightError) as error:
        tilewright.compile(module.eval(), (torch.randn(3, 3),))
    text = str(error.value)
    assert "aten.cumsum.default (complex numbers" in text and "aten._linalg_svd.default" in text
    assert "test_torch.py:" in text


def test_wrong_inputs_of_the_compiled_model():
    model = tilewright.compile(mlp().eval(), (torch.randn(2, 13),))
    with pytest.raises(tilewright.TVMError, match="the input 'input' takes float32 of shape"):
        model(torch.randn(2, 12))


def test_inputs_on_another_device():
    model = tilewright.compile(mlp().eval(), (torch.randn(2, 13),))
    with pytest.raises(
        tilewright.TVMError, match=r"'input' takes float32 .*, and a value on the device meta cannot be"
    ):
        model(torch.empty(2, 13, device="meta"))
    with pytest.raises(TilewrightError, match="is on the device meta; move both to the CPU"):
        tilewright.compile(mlp().eval(), (torch.empty(2, 13, device="meta"),))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.randn(2, 12),), "the module Sequential: .*same reduction dim"),
        ((torch.randn(2, 13), torch.randn(2)), "the module Sequential: too many positional arguments"),
        ({"y": torch.randn(2, 13)}, "the module Sequential: missing a required argument: 'input'"),
        ((torch.ones(2, 13, dtype=torch.int64),), r"aten\.linear.* matrices of one data type, .* int64 and float32"),
        ((torch.randn(2, 13).numpy(),), "example inputs of a module are tensors of torch, not a ndarray"),
        (3, "example inputs are a tuple of tensors, or a mapping by name, not a int"),
    ],
)
def test_example_inputs_that_do_not_fit(given, message):
    with pytest.raises(TilewrightError, match=message):
        tilewright.compile(mlp().eval(), given)


def test_module_on_another_device():
    with pytest.raises(TilewrightError, match=r"is on the device meta; move both to the CPU"):
        tilewright.compile(mlp().eval().to("meta"), (torch.randn(2, 13),))


def test_torch_is_not_imported_for_other_models():
    code = "import sys, tilewright.model; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def quantized(x, scale=0.02, zero=128):
    """Return data through uint8, as the quantizers of PT2E for x86 have them."""
    ops, kind = torch.ops.quantized_decomposed, (0, 255, torch.uint8)
    return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, scale, zero, *kind), scale, zero, *kind)


class QuantizedNetwork(nn.Module):
    """A network as PT2E's quantizer for x86 leaves it: what a layer reads is quantized, not what it gives."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        for name, shape in {"a": (16, 16, 3, 3), "b": (16, 16, 1, 1), "c": (10, 16)}.items():
            self.register_buffer(name, torch.randint(-63, 64, shape, dtype=torch.int8))
            self.register_buffer(f"{name}_scales", torch.rand(shape[0]) * 0.002 + 0.001)
            self.register_buffer(f"{name}_zeros", torch.zeros(shape[0], dtype=torch.int64))

    def weight(self, name):
        ops, held = torch.ops.quantized_decomposed, [getattr(self, name + part) for part in ("", "_scales", "_zeros")]
        return ops.dequantize_per_channel(*held, 0, -127, 127, torch.int8)

    def forward(self, x):
        y = quantized(F.max_pool2d(F.relu(F.conv2d(quantized(x), self.weight("a"), padding=1)), 2))
        y = quantized(F.relu(y + F.conv2d(y, self.weight("b"))))
        return F.linear(quantized(y.mean((2, 3)))[:, None], self.weight("c"))


def test_quantized_network_computes_integers():
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operators
    model = agrees(QuantizedNetwork(), torch.randn(2, 16, 8, 8), atol=0.05)  # a step where a half is rounded
    assert "2 of 2 convolutions, 1 of 1 matrix products" in model.report()


class DynamicallyQuantized(QuantizedNetwork):
    """A layer whose data are quantized by the range that they have."""

    def forward(self, x):
        ops, kind = torch.ops.quantized_decomposed, (0, 255, torch.uint8)
        scale, zero = ops.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        whole = ops.quantize_per_tensor.tensor(x, scale, zero, *kind)
        return F.linear(ops.dequantize_per_tensor.tensor(whole, scale, zero, *kind), self.weight("c"))


def test_scales_that_the_program_computes_leave_products_of_integers():
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    model = agrees(DynamicallyQuantized(), torch.randn(3, 5, 16), others=[(torch.randn(3, 5, 16) - 1,)], atol=1e-4)
    assert "1 of 1 matrix products on integers" in model.report()
