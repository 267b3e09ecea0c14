"""Executors by name: one registration builds and evaluates; names come from the target, the call, and packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
import tilewright.relay.backend.executor
from tilewright import relay
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import GlobalVar
from tilewright.relay.backend import executors
from tilewright.relay.backend.executors import ExecutorCodegen, LoweredProgram, register_executor
from tilewright.relay.visitor import post_order
from tilewright.runtime import plugins


class Listing(ExecutorCodegen):
    """An executor of straight lines: the kernels in the order of their calls, for models whose calls form a chain."""

    def optimization_passes(self, passes: list[Any]) -> list[Any]:
        return [relay.transform.InferType(), relay.transform.SimplifyInference()]

    def generate(self, program: LoweredProgram) -> Callable[[Any], Any]:
        body = program.lowered["main"].body
        calls = [e for e in post_order(body) if isinstance(e, relay.Call) and isinstance(e.op, GlobalVar)]
        shape = body.checked_type.concrete_shape

        def finish(library: Any) -> Callable[[np.ndarray], np.ndarray]:
            kernels = [library[call.op.name_hint] for call in calls]

            def run(x: np.ndarray) -> np.ndarray:
                value = tvm.nd.array(x)
                for kernel in kernels:
                    out = tvm.nd.empty(shape)
                    kernel(value, out)
                    value = out
                return value.numpy()

            return run

        return finish


class Doubling:
    """An evaluator that gives twice the value."""

    def __init__(self, mod: tvm.IRModule, device: tvm.runtime.Device, target: Any) -> None:
        self.inner = relay.create_executor("debug", mod, device, target)

    def evaluate(self, expr: Any = None, binds: Any = None) -> Any:
        return lambda *args: 2 * self.inner.evaluate(expr, binds)(*args).numpy()


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(executors, "_kinds", dict(executors._kinds))
    monkeypatch.setattr(plugins, "_loaded", set())
    yield


def network() -> tvm.IRModule:
    x = relay.var("x", shape=(2, 5))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.softmax(relay.tanh(x)))))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


X = np.linspace(-2, 3, 10, dtype="float32").reshape(2, 5)


@pytest.mark.parametrize("how", ["target", "host", "argument"])
def test_one_registration_builds_and_evaluates(how: str) -> None:
    register_executor("listing", codegen=Listing, evaluator=Doubling)
    match how:
        case "target":
            run = relay.build(network(), "llvm -executor=listing")
        case "host":
            run = relay.build(network(), "llvm", target_host="llvm -executor=listing")
        case _:
            run = relay.build(network(), "llvm", executor="listing")
    expected = softmax(softmax(np.tanh(X)))
    np.testing.assert_allclose(run(X), expected, rtol=1e-5)
    evaluated = relay.create_executor("listing", network()).evaluate()(X)
    np.testing.assert_allclose(evaluated, 2 * expected, rtol=1e-5)


def test_parts_may_come_apart_but_not_twice() -> None:
    register_executor("listing", codegen=Listing)
    with pytest.raises(
        UnsupportedError, match="no executor 'listing' to evaluate with; there is 'aot', 'debug', 'graph', 'vm'"
    ):
        relay.create_executor("listing", network())
    register_executor("listing", evaluator=Doubling)
    assert relay.create_executor("listing", network())
    with pytest.raises(TilewrightError, match="an executor 'graph' is registered already; override=True replaces it"):
        register_executor("graph", codegen=Listing)
    register_executor("graph", codegen=Listing, override=True)
    assert callable(relay.build(network(), "llvm"))


@pytest.mark.parametrize("target", ["llvm -executor=board", "c -executor=board", {"cpu": "llvm -executor=board"}])
def test_an_executor_that_there_is_none_of_is_named_with_those_there_are(target: Any) -> None:
    with pytest.raises(
        UnsupportedError, match=r"no executor 'board' to build for; there is 'aot', 'graph', 'vm'. Packages add others"
    ):
        relay.build(network(), target)


def test_build_module_is_for_graphs() -> None:
    register_executor("listing", codegen=Listing)
    with pytest.raises(
        TilewrightError, match=r"BuildModule is for graphs; relay.build returns the function of 'listing'"
    ):
        relay.build_module.BuildModule().build(network(), "llvm", executor="listing")


def _installed(monkeypatch: pytest.MonkeyPatch, register: Callable[[], None]) -> None:
    module = ModuleType("a_package_with_an_executor")
    module.register = register  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = EntryPoint("listing", f"{module.__name__}:register", executors.GROUP)
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: EntryPoints([entry]) if group == entry.group else ()
    )


def test_packages_are_loaded_when_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def register() -> None:
        calls.append(1)
        register_executor("listing", codegen=Listing)

    _installed(monkeypatch, register)
    relay.build(network(), "llvm")
    assert not calls
    np.testing.assert_allclose(
        relay.build(network(), "llvm -executor=listing")(X), softmax(softmax(np.tanh(X))), rtol=1e-5
    )
    with pytest.raises(UnsupportedError, match="there is 'aot', 'graph', 'listing', 'vm'"):
        relay.build(network(), "llvm -executor=other")
    assert calls == [1]


def test_a_package_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def register() -> None:
        raise ValueError("no licence")

    _installed(monkeypatch, register)
    with (
        pytest.warns(
            RuntimeWarning, match=r"plug-in 'listing' \(a_package_with_an_executor:reg.*ValueError: no licence"
        ),
        pytest.raises(UnsupportedError, match="there is no executor 'listing'"),
    ):
        relay.build(network(), "llvm -executor=listing")


def test_optimize_goes_through_fusion_unless_told_otherwise() -> None:
    fused, params = relay.optimize(network(), "llvm")
    assert "Primitive=1" in str(fused) and params == {}
    assert "Primitive" not in str(relay.optimize(network(), "llvm", fuse=False)[0])
    with tvm.target.Target("llvm"):
        assert tvm.ir.structural_equal(relay.optimize(network())[0], fused)
    with pytest.raises(TilewrightError, match="needs a target"):
        relay.optimize(network())
