"""What callers may write to is theirs; what others read too is read-only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, rpc
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


def _library() -> Any:
    mod, params = _program()
    return relay.build(mod, "llvm", params=params)


def _weight_name(library: Any) -> str:
    """The parameter that the sum reads (the outputs that are weights have copies)."""
    return next(name for name, value in library.get_params().items() if value.shape == _WEIGHT.shape)


def _shared_weight() -> tuple[GraphModule, NDArray]:
    library = _library()
    executor = GraphModule(library["default"](tvm.cpu()))
    return executor, executor.get_input(_weight_name(library))


def _constant_of_a_program() -> tuple[None, NDArray]:
    mod, params = _program()
    return None, relay.vm.compile(mod, "llvm", params=params).mod["get_constant"](0)


@pytest.mark.parametrize("shared", [_shared_weight, _constant_of_a_program])
def test_what_others_read_too_is_read_only(shared: Callable[[], tuple[Any, NDArray]]) -> None:
    keep, array = shared()
    assert not array.writeable and not numpy_view(array).flags.writeable
    for write in (
        lambda: array.copyfrom(_X),
        lambda: tvm.nd.array(_X).copyto(array),
        lambda: numpy_view(array, writable=True),
        lambda: array.__setitem__(slice(None), _X),
    ):
        with pytest.raises(ValueError, match=r"read-only.*set_input"):
            write()
    np.testing.assert_array_equal(array.numpy(), _WEIGHT)
    del keep


def test_consumers_of_dlpack_get_a_copy_of_what_is_read_only() -> None:
    torch = pytest.importorskip("torch")
    _, array = _shared_weight()
    torch.from_dlpack(array).zero_()
    np.testing.assert_array_equal(array.numpy(), _WEIGHT)
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__(copy=False)


def test_a_parameter_that_was_set_is_the_executors_own() -> None:
    library = _library()
    executor, other = (GraphModule(library["default"](tvm.cpu())) for _ in range(2))
    name = _weight_name(library)
    executor.set_input(name, _WEIGHT)
    assert executor.get_input(name).writeable and executor.get_input("x").writeable
    executor.get_input(name).copyfrom(_X)
    np.testing.assert_array_equal(_outputs(executor)[0].numpy(), _X + _X)
    np.testing.assert_array_equal(_outputs(other)[0].numpy(), _X + _WEIGHT)


def test_the_callers_array_stays_writable_where_a_parameter_uses_it() -> None:
    library = _library()
    executor, mine = GraphModule(library["default"](tvm.cpu())), tvm.nd.array(_X)
    executor.set_input_zero_copy(_weight_name(library), mine)
    executor.get_input(_weight_name(library)).copyfrom(2 * _X)
    np.testing.assert_array_equal(mine.numpy(), 2 * _X)


def test_outputs_are_not_written_to_read_only_arrays() -> None:
    executor, weight = _shared_weight()
    with pytest.raises(tvm.TVMError, match="read-only"):
        executor.set_output_zero_copy(0, weight)


def test_setting_a_parameter_on_another_machine_changes_that_executor_alone(tmp_path: Any) -> None:
    session = rpc.LocalSession()
    library = _library()
    library.export_library(str(tmp_path / "model.so"))
    session.upload(str(tmp_path / "model.so"))
    loaded = session.load_module("model.so")
    executor, other = (GraphModule(loaded["default"](session.cpu())) for _ in range(2))
    executor.set_input(_weight_name(library), _X)
    np.testing.assert_array_equal(_outputs(executor)[0].numpy(), _X + _X)
    np.testing.assert_array_equal(_outputs(other)[0].numpy(), _X + _WEIGHT)


@pytest.mark.parametrize("served", [False, True], ids=["here", "served"])
def test_weights_on_another_machine_are_read_only(served: bool, tmp_path: Any, request: pytest.FixtureRequest) -> None:
    session = rpc.LocalSession()
    if served:
        server = rpc.Server(silent=True)
        request.addfinalizer(server.terminate)
        session = rpc.connect("127.0.0.1", server.port)
    library = _library()
    library.export_library(str(tmp_path / "model.so"))
    session.upload(str(tmp_path / "model.so"))
    executor = GraphModule(session.load_module("model.so")["default"](session.cpu()))
    weight, free = executor.get_input(_weight_name(library)), tvm.nd.array(_X, session.cpu())
    for write in (lambda: weight.copyfrom(_X), lambda: free.copyto(weight)):
        with pytest.raises(tvm.TVMError, match=r"read-only.*set_input"):
            write()
    np.testing.assert_array_equal(weight.numpy(), _WEIGHT)
    weight.copyto(free)
    np.testing.assert_array_equal(free.numpy(), _WEIGHT)
