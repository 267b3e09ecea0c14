"""Tilewright as a backend of torch.compile, beside PyTorch itself."""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.torch_compile import Options, tilewright
from tilewright.torch_compile.compiler import CompileWarning, compile_graph

ROOT = Path(__file__).parents[2]


class Net(torch.nn.Module):
    """Two layers with a normalization between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.norm(self.first(x))))


def compiled(function: Any, *inputs: torch.Tensor, dynamic: bool = False, **options: Any) -> Any:
    """A function of torch as ``compile_graph`` makes it of its graph, without TorchDynamo."""
    graph = make_fx(function, tracing_mode="symbolic" if dynamic else "fake")(*inputs)
    run = compile_graph(Options.of(options, None), graph, inputs)
    return lambda *args: run(list(args))


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(_list(found), _list(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def _list(value: Any) -> Sequence[torch.Tensor]:
    return value if isinstance(value, (list, tuple)) else [value]


# ---- through torch.compile: what starting TorchDynamo takes is spent once ----


@pytest.fixture(scope="module")
def model() -> Net:
    torch.manual_seed(1)
    torch._dynamo.reset()
    return Net()


def test_the_entry_point_names_the_backend() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.torch_dynamo_backends]\ntilewright = "tilewright.torch_compile:tilewright"' in text
    entry = EntryPoint("tilewright", "tilewright.torch_compile:tilewright", "torch_dynamo_backends")
    assert entry.load() is tilewright


def test_forward_and_backward_are_as_in_pytorch(model: Net) -> None:
    x = torch.randn(4, 5)
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)  # all of both graphs is compiled
        run = torch.compile(model, backend=tilewright, dynamic=False)
        found = torch.autograd.grad(run(x).square().sum(), list(model.parameters()))
    close(found, expected)


def test_one_program_serves_all_sizes(model: Net) -> None:
    torch._dynamo.reset()
    graphs: list[Any] = []

    def counted(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return tilewright(gm, inputs)

    run = torch.compile(model, backend=counted, dynamic=True)
    with torch.no_grad():
        run(torch.randn(2, 5))
        before = len(graphs)
        for batch in (3, 17):
            x = torch.randn(batch, 5)
            close(run(x), model(x))
    assert len(graphs) == before


def test_weights_that_are_constants_may_change(model: Net) -> None:
    torch._dynamo.reset()
    x = torch.randn(2, 5)
    run = torch.compile(model, backend=tilewright, options={"freezing": True}, dynamic=False)
    with torch.no_grad():
        close(run(x), model(x))
        model.first.weight.mul_(2)
        with pytest.warns(CompileWarning, match="weights have changed since they became constants"):
            close(run(x), model(x))
        model.first.weight.mul_(2)
        close(run(x), model(x))


def test_the_tvm_backend_of_torch_runs_on_tilewright(model: Net) -> None:
    import tilewright.tvm  # noqa: F401

    torch._dynamo.reset()
    x = torch.randn(2, 5)
    with torch.no_grad():
        close(torch.compile(model, backend="tvm", dynamic=False)(x), model(x))


# ---- graphs ----


def test_results_stay_as_they_are_in_later_calls() -> None:
    run = compiled(lambda x: [x * 2, x + 1], torch.randn(3, 4))
    x = torch.randn(3, 4)
    first = run(x)
    run(torch.zeros(3, 4))
    close(first, [x * 2, x + 1])
    first[0].zero_()
    close(run(x), [x * 2, x + 1])


def test_an_input_that_is_an_output_is_passed_through() -> None:
    x = torch.randn(3)
    given, made = compiled(lambda x: [x, x - 1], x)(x)
    assert given is x
    close(made, x - 1)


def test_a_view_of_an_input_is_a_tensor_of_its_own() -> None:
    x = torch.randn(2, 6)
    (found,) = compiled(lambda x: [x.reshape(3, 4)], x)(x)
    found.zero_()
    assert x.abs().sum() > 0


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (0, 2, 1)])
def test_outputs_lie_in_memory_as_those_of_pytorch(order: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 4)
    (found,) = compiled(lambda x: [torch.exp(x).permute(order)], x)(x)
    close(found, torch.exp(x).permute(order))
    assert found.stride() == torch.exp(x).permute(order).stride()


def test_inputs_may_have_gaps_and_begin_anywhere() -> None:
    run = compiled(lambda x: [x * 3], torch.randn(4, 3))
    for x in (
        torch.randn(3, 4).t(),
        torch.randn(13)[1:].view(4, 3),
        torch.randn(8, 3)[::2],
        torch.randn(4, 1).expand(4, 3),
    ):
        close(run(x), x * 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.uint8])
def test_data_types_pass(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    (found,) = compiled(lambda x: [torch.cat([x, x])], x)(x)
    assert found.dtype == dtype
    assert found.tolist() == [*x.tolist()] * 2


def test_sizes_of_zero_and_no_dimensions_pass() -> None:
    for shape in ((0, 3), (), (1,)):
        x = torch.randn(shape)
        close(compiled(lambda x: [x + 1], x)(x), x + 1)


def test_numbers_of_symbolic_sizes_are_python_numbers() -> None:
    run = compiled(lambda x: [x * 2, x.shape[0] * 3], torch.randn(4, 3), dynamic=True)
    doubled, number = run(torch.ones(5, 3))
    assert number == 15
    close(doubled, torch.full((5, 3), 2.0))


def test_threads_may_share_a_program() -> None:
    run = compiled(lambda x: [torch.exp(x).sum(0)], torch.randn(64, 64))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = torch.full((64, 64), 0.01 * seed)
        for _ in range(20):
            (found,) = run(x)
            if not torch.allclose(found, torch.exp(x).sum(0), rtol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- what stays in PyTorch ----


@torch.library.custom_op("tilewright_tests::twist", mutates_args=())
def twist(x: torch.Tensor) -> torch.Tensor:
    """An operator that no compiler knows."""
    return x.flip(0) * 2


@twist.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _twisted(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.relu(twist(x + 1)) * 3]


def test_an_unknown_operator_runs_in_pytorch_and_is_named_once() -> None:
    x = torch.randn(4)
    run = compiled(_twisted, x)
    with pytest.warns(CompileWarning, match=r"1 of \d+ operators run in PyTorch, .* ms of .* ms.*\n.*twist.*no conv"):
        close(run(x), _twisted(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(run(x), _twisted(x))


def test_a_part_may_return_several_results_of_one_operator() -> None:
    def split(x: torch.Tensor) -> list[torch.Tensor]:
        normal, mean, inverse = torch.native_layer_norm(x, [4], None, None, 1e-5)
        return [twist(normal), mean, inverse]

    x = torch.randn(3, 4)
    with pytest.warns(CompileWarning, match="twist"):
        close(compiled(split, x)(x), split(x))


def test_a_result_that_a_converter_leaves_out_stays_in_pytorch() -> None:
    x, graph = torch.randn(1, 2, 3, 4), torch.fx.Graph()
    attention = torch.ops.aten._scaled_dot_product_attention_math.default
    given = graph.placeholder("x")
    both = graph.call_function(attention, (given, given, given))
    weights = graph.call_function(operator.getitem, (both, 1))
    graph.output([weights])
    for node, value in ((given, x), (both, attention(x, x, x)), (weights, attention(x, x, x)[1])):
        node.meta["val"] = value
    run = compile_graph(Options(), torch.fx.GraphModule({}, graph), [x])
    with pytest.warns(CompileWarning, match="attention_math.*result 1, which the graph reads, is not computed"):
        close(run([x]), [attention(x, x, x)[1]])


def test_without_fallback_an_unknown_operator_is_an_error() -> None:
    with pytest.raises(
        UnsupportedError, match=r"cannot compile operators:\n  tilewright_tests.twist.default .*no conv"
    ):
        compiled(_twisted, torch.randn(4), fallback=False)


def test_random_numbers_are_those_of_torchs_generator() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return (x + torch.randn(3)).relu() + torch.rand_like(x)

    x, results = torch.zeros(3), []
    with pytest.warns(CompileWarning, match="numbers of torch's generator"):
        run = compiled(noisy, x)
        for seed in (1, 2):
            torch.manual_seed(seed)
            results.append(_list(run(x))[0])
            torch.manual_seed(seed)
            close(results[-1], noisy(x))
    assert (results[0] != results[1]).any()


def test_complex_numbers_that_come_from_outside_stay_in_pytorch() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    run = compiled(lambda x: [torch.view_as_real(x * 2) + 1], x)
    with pytest.warns(CompileWarning, match="complex numbers"):
        close(run(x), torch.view_as_real(x * 2) + 1)


# ---- options ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 3}, "has no option speed; it has target, threads"),
        ({"freezing": 1}, "the option freezing cannot be 1"),
        ({"tune_records": "/nowhere.json"}, "tune_records: no file /nowhere.json"),
        ({"threads": "two"}, "the option threads cannot be 'two'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        Options.of(options, None)


def test_there_are_no_modes() -> None:
    with pytest.raises(TilewrightError, match="no mode 'max-autotune'"):
        Options.of(None, "max-autotune")


def test_libraries_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3)
    compiled(lambda x: [x * 2], x, cache_dir=tmp_path)
    (kept,) = tmp_path.iterdir()
    compiled(lambda x: [x * 3], x, cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr("tilewright.torch_compile.library.compile_model", never)
    close(compiled(lambda x: [x * 2], x, cache_dir=tmp_path)(x), x * 2)
    assert kept.stat().st_mode & 0o022 == 0


def test_a_damaged_library_is_built_again(tmp_path: Path) -> None:
    x = torch.randn(3)
    compiled(lambda x: [x * 2], x, cache_dir=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"no library")
    close(compiled(lambda x: [x * 2], x, cache_dir=tmp_path)(x), x * 2)
    assert kept.read_bytes() != b"no library"
