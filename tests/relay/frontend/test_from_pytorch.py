"""``from_pytorch``: modules and functions of TorchScript, beside what PyTorch computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tilewright import relay
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.frontend.pytorch import from_pytorch

pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore:.*torch.jit.*:DeprecationWarning")


def run(script: Any, *inputs: torch.Tensor, infos: Any = None, executor: str = "graph") -> Any:
    infos = infos or [(f"in{i}", (tuple(x.shape), str(x.dtype).removeprefix("torch."))) for i, x in enumerate(inputs)]
    mod, params = from_pytorch(script, infos)
    values = {name: x.numpy() for (name, _), x in zip(infos, inputs, strict=True)}
    return relay.create_executor(executor, mod, target="llvm").evaluate()(**values, **params)


def check(module: Any, *inputs: torch.Tensor, script: bool = False, executor: str = "graph") -> None:
    made = torch.jit.script(module) if script else torch.jit.trace(module, inputs)
    found = run(made, *inputs, executor=executor)
    expected = module(*inputs)
    assert found.numpy().dtype == expected.numpy().dtype
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)


class Block(torch.nn.Module):
    """A convolution whose result is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        y += 1
        return y.relu_().flatten(1)


@torch.no_grad()
def test_a_traced_module_computes_the_same_and_keeps_the_names_of_its_weights() -> None:
    block, x = Block().eval(), torch.randn(1, 3, 6, 6)
    check(block, x)
    mod, params = from_pytorch(torch.jit.trace(block, x), [("image", (1, 3, 6, 6))])
    assert [p.name_hint for p in mod["main"].params] == ["image", "conv.weight", "conv.bias"]
    np.testing.assert_array_equal(params["conv.weight"].numpy(), block.conv.weight.numpy())


def test_names_for_the_parser_have_no_points() -> None:
    block, x = Block().eval(), torch.randn(1, 3, 6, 6)
    _, params = from_pytorch(torch.jit.trace(block, x), [("x", x.shape)], use_parser_friendly_name=True)
    assert sorted(params) == ["conv_bias", "conv_weight"]


def test_sizes_and_numbers_are_known_while_importing() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[0] + torch.tensor(2))
        return x.reshape(-1, x.shape[0] // 2).sum() + steps

    check(function, torch.randn(4, 3))


def test_a_loop_of_known_length_and_lists() -> None:
    class Loop(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts: list[torch.Tensor] = []
            for i in range(x.size(0)):
                if i % 2 == 0:
                    parts.append(x * float(i))
                else:
                    parts += [x - 1]
            return torch.stack(parts)

    check(Loop(), torch.randn(3, 2), script=True)


def test_the_results_nest_as_in_the_module() -> None:
    class Pair(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
            return x + 1, (x * 2, x - 3)

    found = run(torch.jit.script(Pair()), torch.ones(2), executor="vm")
    assert [found[0].numpy()[0], found[1][0].numpy()[0], found[1][1].numpy()[0]] == [2, 2, -2]


def test_inputs_that_are_tuples_become_one_input_for_each_tensor() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return x + state[0] * state[1]

    mod, _ = from_pytorch(torch.jit.script(Sum()), [("x", (2,)), ("state", ((2,), (2,)))])
    assert [p.name_hint for p in mod["main"].params] == ["x", "state_0", "state_1"]


def test_a_dimension_may_be_any() -> None:
    script = torch.jit.trace(torch.nn.Linear(3, 2).eval(), torch.randn(4, 3))
    mod, params = from_pytorch(torch.jit.freeze(script), [("x", (4, 3))])
    assert not params or mod["main"].params[0].name_hint == "x"
    free = torch.jit.script(torch.nn.ReLU())
    dynamic, _ = from_pytorch(free, [("x", (relay.Any(), 3))])
    found = relay.create_executor("vm", dynamic, target="llvm").evaluate()(np.float32([[-1, 2, 3]] * 5))
    assert found.numpy().tolist() == [[0, 2, 3]] * 5


def test_operators_of_the_caller_are_converted_by_the_caller() -> None:
    seen: list[Any] = []

    def convert(inputs: list[Any], types: list[str]) -> Any:
        seen.append((inputs[1], types[0]))
        return relay.add(inputs[0], relay.const(float(inputs[1])))

    script = torch.jit.trace(lambda x: torch.nn.functional.leaky_relu(x, 0.5), torch.randn(3))
    mod, _ = from_pytorch(script, [("x", (3,))], {"aten::leaky_relu": convert})
    found = relay.create_executor("graph", mod, target="llvm").evaluate()(np.zeros(3, "float32"))
    assert found.numpy().tolist() == [0.5] * 3
    assert seen == [(0.5, "float32")]


def test_a_saved_module_imports_with_the_types_of_its_inputs(tmp_path: Path) -> None:
    x, y = torch.rand(2, 3), torch.ones(2, 3, dtype=torch.int32)
    script = torch.jit.trace(lambda x, y: x.to(torch.int32) + y, (x, y))
    torch.jit.save(script, str(tmp_path / "model.pt"))
    loaded = torch.jit.load(str(tmp_path / "model.pt"))
    mod, _ = from_pytorch(loaded, [("a", ((2, 3), "float")), ("b", ((2, 3), "int"))])
    assert [p.type_annotation.dtype for p in mod["main"].params] == ["float32", "int32"]


@pytest.mark.parametrize(
    ("infos", "message"),
    [
        ([], "has 1 inputs, and input_infos has 0"),
        ([("x", (4, 4))], r"traced with the shape \[2, 3\]"),
        ([(2, 3)], "input_infos has .name, shape. or"),
        ("x", "input_infos is a list"),
        ([("x", ((2, 3), "complex"))], "'complex' is no data type of torch, such as float32"),
    ],
)
def test_infos_that_do_not_fit_are_named(infos: Any, message: str) -> None:
    script = torch.jit.trace(lambda x: x + 1, torch.zeros(2, 3))
    with pytest.raises(TilewrightError, match=message):
        from_pytorch(script, infos)


def test_a_module_that_is_no_script_is_refused() -> None:
    with pytest.raises(TilewrightError, match=r"from_pytorch takes what torch\.jit\.trace or"):
        from_pytorch(torch.nn.ReLU(), [("x", (1,))])


@torch.no_grad()
def test_branches_and_loops_that_depend_on_values() -> None:
    class Flow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                y = x + self.weight
            else:
                y = x - self.weight
            while bool(y.abs().sum() < 100):
                y += y * 0.5
            return y

    flow = Flow()
    script = torch.jit.script(flow)
    for x in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])):
        found = run(script, x, executor="vm")
        np.testing.assert_allclose(found.numpy(), flow(x.clone()).numpy(), rtol=1e-5)


def test_a_window_may_begin_at_a_place_that_is_an_input() -> None:
    class Window(torch.nn.Module):
        def forward(self, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
            return torch.narrow(x, 0, start, 2)

    check(Window(), torch.randn(5, 3), torch.tensor(2), executor="vm")


def test_results_of_several_tensors_are_taken_apart() -> None:
    check(lambda x: torch.unbind(x)[0] + torch.where(x > 0, x, -x).sum(), torch.randn(1, 3))


class Values(torch.nn.Module):
    """An operator that has no converter, behind one of torch's own modules."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(self.layer(x))


@pytest.mark.parametrize("script", [torch.jit.script, lambda module: torch.jit.trace(module, torch.zeros(3, 3))])
@torch.no_grad()
def test_an_operator_without_a_converter_is_named_with_its_place(script: Any) -> None:
    place = r"test_from_pytorch.py:\d+: return torch.linalg.eigvalsh\(self.layer\(x\)\)"
    with pytest.raises(UnsupportedError, match=rf"aten._linalg_eigh.default: \S*{place}"):
        from_pytorch(script(Values()), [("x", (3, 3))])
