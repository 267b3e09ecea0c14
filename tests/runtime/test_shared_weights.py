"""What callers may write to is theirs: weights that are outputs, and constants of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.ndarray import NDArray, numpy_view
from tilewright.runtime.vm import VirtualMachine

_WEIGHT = np.arange(16, dtype="float32").reshape(4, 4)
_X = np.ones((4, 4), "float32")


def _program() -> tuple[tvm.IRModule, dict[str, Any]]:
    """Of x and the weight w: x + w, w, and w under another shape."""
    x, w = relay.var("x", shape=(4, 4)), relay.var("w", shape=(4, 4))
    body = relay.Tuple([relay.add(x, w), w, relay.reshape(w, (16,))])
    return tvm.IRModule.from_expr(relay.Function([x, w], body)), {"w": _WEIGHT}


def _outputs(executor: GraphModule) -> list[NDArray]:
    executor.run(x=_X)
    return [executor.get_output(i) for i in range(executor.get_num_outputs())]


@pytest.fixture
def make() -> Callable[[], GraphModule]:
    mod, params = _program()
    library = relay.build(mod, "llvm", params=params)
    return lambda: GraphModule(library["default"](tvm.cpu()))


@pytest.mark.parametrize("index", [1, 2])
def test_writing_to_a_weight_that_is_an_output_changes_no_executor(make: Callable[[], GraphModule], index: int) -> None:
    executor, other = make(), make()
    numpy_view(_outputs(executor)[index], writable=True)[...] = -7
    for each in (executor, other, make()):
        found = [a.numpy() for a in _outputs(each)]
        np.testing.assert_array_equal(found[0], _X + _WEIGHT)
        np.testing.assert_array_equal(found[1], _WEIGHT)
        np.testing.assert_array_equal(found[2], _WEIGHT.reshape(-1))


@pytest.mark.parametrize("index", [1, 2])
def test_writing_to_a_constant_that_a_program_gives_changes_no_machine(index: int) -> None:
    mod, params = _program()
    executable = relay.vm.compile(mod, "llvm", params=params)
    machine, other = (VirtualMachine(executable, tvm.cpu()) for _ in range(2))
    numpy_view(machine.run(_X)[index], writable=True)[...] = -7
    for each in (machine, other, VirtualMachine(executable, tvm.cpu())):
        found = each.run(_X)
        np.testing.assert_array_equal(found[0].numpy(), _X + _WEIGHT)
        np.testing.assert_array_equal(found[1].numpy(), _WEIGHT)
        np.testing.assert_array_equal(found[2].numpy(), _WEIGHT.reshape(-1))


def test_writing_to_constants_that_get_outputs_gives_changes_nothing() -> None:
    mod, params = _program()
    machine = VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    machine.invoke_stateful("main", _X)
    numpy_view(machine.get_outputs()[1], writable=True)[...] = -7
    np.testing.assert_array_equal(machine.run(_X)[0].numpy(), _X + _WEIGHT)
