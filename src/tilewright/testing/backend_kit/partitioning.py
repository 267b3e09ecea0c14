"""Checks of partitioning for an external compiler, and of the library built from it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import relay, runtime
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import COMPILER, GLOBAL_SYMBOL
from tilewright.relay.transform import InferType
from tilewright.relay.visitor import post_order_visit
from tilewright.testing.backend_kit.backend import Backend, Check, assert_near, outputs
from tilewright.testing.backend_kit.numerics import draw_inputs, meaning

LOAD = """
import sys
import numpy as np
import tilewright as tvm
from tilewright.contrib import graph_executor
library, folder, *devices = sys.argv[1:]
executor = graph_executor.GraphModule(tvm.runtime.load_module(library)["default"](*map(tvm.device, devices)))
executor.run(x=np.load(folder + "/x.npy"))
np.save(folder + "/out.npy", executor.get_output(0).numpy())
"""


def checks(backend: Backend) -> Iterator[Check]:
    """Yield the checks that apply."""
    if backend.compiler is not None:
        for function in (takes_a_convolution, marks_its_functions, partitions_alike_twice, leaves_the_rest):
            yield Check("partitioning", function.__name__, function, backend)
    if backend.compiler is None and backend.device is None:
        return
    for function in (
        library_runs_in_another_process,
        executors_share_a_library,
        runs_from_threads,
        gives_executors_back,
    ):
        yield Check("library", function.__name__, function, backend)


def network(seed: int = 0) -> tuple[IRModule, dict[str, Any]]:
    """A small network: convolutions, a pool and a dense layer, weights as parameters."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return runtime.ndarray.array(values.astype("float32"))

    params = {"w1": weights(16, 3, 3, 3), "w2": weights(24, 16, 3, 3), "w3": weights(10, 24)}
    x, w1, w2, w3 = relay.var("x", shape=(1, 3, 16, 16)), *(relay.var(k, shape=v.shape) for k, v in params.items())
    first = relay.nn.relu(relay.nn.conv2d(x, w1, padding=(1, 1), channels=16, kernel_size=(3, 3)))
    second = relay.nn.relu(relay.nn.conv2d(first, w2, strides=(2, 2), channels=24, kernel_size=(3, 3)))
    out = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(second)), w3, units=10)
    return InferType()(IRModule.from_expr(Function([x, w1, w2, w3], out))), params


def answer(mod: IRModule, params: dict[str, Any], x: np.ndarray) -> list[np.ndarray]:
    """Return the network's result."""
    return meaning(mod, {"x": x} | {name: value.numpy() for name, value in params.items()})


def image(seed: int = 1) -> np.ndarray:
    """The network's input."""
    return np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype("float32")


def _taken(backend: Backend, mod: IRModule) -> list[Function]:
    functions = (f for f in mod.functions.values() if isinstance(f, Function))
    return [f for f in functions if f.attrs is not None and COMPILER.get(f) == backend.compiler]


def takes_a_convolution(backend: Backend) -> None:
    """A convolution, which every accelerator has, goes to it."""
    mod, params = network()
    taken = _taken(backend, backend.prepared(mod, params))
    assert taken, "no function of a network of convolutions has its Compiler attribute"
    assert any("nn.conv2d" in _operators(function) for function in taken), "none of them has a convolution"


def _operators(function: Function) -> set[str]:
    found: set[str] = set()

    def visit(expr: Any) -> None:
        if isinstance(expr, Call) and hasattr(expr.op, "name"):
            found.add(expr.op.name)

    post_order_visit(function, visit)
    return found


def marks_its_functions(backend: Backend) -> None:
    """Its functions have names of their own, and main computes what it did, of the same types."""
    mod, params = network()
    partitioned = backend.prepared(mod, params)
    symbols = [GLOBAL_SYMBOL.of(function) for function in _taken(backend, partitioned)]
    assert len(set(symbols)) == len(symbols), f"two of its functions share a name: {symbols}"
    before, after = InferType()(mod)["main"], InferType()(partitioned)["main"]
    assert before.ret_type == after.ret_type, f"main gives {after.ret_type}, it gave {before.ret_type}"
    executor = backend.execute(backend.compile(mod, params))
    assert_near(outputs(executor, {"x": image()}), answer(mod, params, image()), backend.tolerance, "the network")


def partitions_alike_twice(backend: Backend) -> None:
    """Partitioning a network twice yields the same partition, to the letter."""
    mod, params = network()
    first, second = (backend.prepared(mod, params).astext() for _ in range(2))
    assert first == second, "two partitions of one network differ"


def leaves_the_rest(backend: Backend) -> None:
    """Unsupported operators stay on the host, between parts that the compiler takes."""
    for operator in backend.unsupported:
        x = relay.var("x", shape=(1, 8, 9, 9))
        weights = relay.const(np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype("float32") / 8)
        convolved = relay.nn.conv2d(x, weights, padding=(1, 1), channels=8, kernel_size=(3, 3))
        middle = getattr(relay, operator)(relay.nn.relu(convolved))
        mod = IRModule.from_expr(
            Function([x], relay.nn.relu(relay.nn.conv2d(middle, weights, channels=8, kernel_size=(3, 3))))
        )
        mod = InferType()(mod)
        partitioned = backend.prepared(mod)
        for function in _taken(backend, partitioned):
            assert operator not in _operators(function), f"it took {operator}, which it says it does not"
        inputs = draw_inputs(mod, np.random.default_rng(2))
        found = outputs(backend.execute(backend.compile(mod)), inputs)
        assert_near(found, meaning(mod, inputs), backend.tolerance, f"convolutions around {operator}")


# ---- libraries ----


def library_runs_in_another_process(backend: Backend) -> None:
    """An exported library returns its answer in a process that imports Tilewright alone."""
    mod, params = network()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "network.so"
        backend.compile(mod, params).export_library(str(library))
        np.save(Path(folder) / "x.npy", image())
        command = [sys.executable, "-c", LOAD, str(library), folder, *backend.devices]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        found = np.load(Path(folder) / "out.npy")
    assert_near([found], answer(mod, params, image()), backend.tolerance, "the exported network")


def executors_share_a_library(backend: Backend) -> None:
    """Two executors of a library keep their inputs apart, and each runs again and again."""
    mod, params = network()
    library = backend.compile(mod, params)
    executors = [backend.execute(library) for _ in range(2)]
    for _ in range(2):
        for seed, executor in enumerate(executors):
            executor.set_input("x", image(seed))
        for seed, executor in enumerate(executors):
            executor.run()
            found = [executor.get_output(0).numpy()]
            assert_near(found, answer(mod, params, image(seed)), backend.tolerance, f"executor {seed}")


def runs_from_threads(backend: Backend) -> None:
    """Executors of a library run on threads of their own."""
    mod, params = network()
    library = backend.compile(mod, params)
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            executor = backend.execute(library)
            for _ in range(3):
                found = outputs(executor, {"x": image(seed)})
                assert_near(found, expected[seed], backend.tolerance, f"thread {seed}")
        except BaseException as error:
            problems.append(error)

    expected = [answer(mod, params, image(seed)) for seed in range(3)]
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise AssertionError(f"on a thread: {problems[0]!r}") from problems[0]


def gives_executors_back(backend: Backend) -> None:
    """When executors and libraries are gone, the driver holds what it held before."""
    mod, params = network()
    with backend.gives_all_back():
        library = backend.compile(mod, params)
        executor = backend.execute(library)
        outputs(executor, {"x": image()})
        del executor, library
