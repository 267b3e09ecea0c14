"""Parameters of a build: arrays of numpy are copied once, and the library has its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.runtime import vm

EXTENT = 512  # rows and columns of matrices of 1 MiB, which a build reads where they lie
MEASURE = """
import numpy as np
import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

def own():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) << 10

small = relay.var("x", shape=(1, 8))
product = relay.nn.dense(small, relay.const(np.ones((8, 8), "float32")))
relay.build(tvm.IRModule.from_expr(relay.Function([small], product)), "llvm")  # loads the code generator
extent, layers = 2048, 4
given = {f"w{i}": np.full((extent, extent), 0.5, "float32") for i in range(layers)}
x = relay.var("x", shape=(1, extent))
body = x
for name in given:
    body = relay.nn.dense(body, relay.var(name, shape=(extent, extent)))
mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
before = own()
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, "llvm", params=given)
executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
executor.run(x=np.ones((1, extent), "float32"))
lib.get_params()
print(own() - before, sum(array.nbytes for array in given.values()))
"""


def network() -> tvm.IRModule:
    """A product with a matrix that is packed, and a sum with one that is not."""
    x, weight, bias = (relay.var(name, shape=shape) for name, shape in SHAPES.items())
    return tvm.IRModule.from_expr(relay.Function([x, weight, bias], relay.nn.dense(x, weight) + bias))


SHAPES = {"x": (EXTENT, EXTENT), "weight": (EXTENT, EXTENT), "bias": (EXTENT, EXTENT)}


def of_graph(given: dict[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    executor = graph_executor.GraphModule(relay.build(network(), "llvm", params=given)["default"](tvm.cpu()))

    def run(data: np.ndarray) -> np.ndarray:
        executor.run(x=data)
        return executor.get_output(0).numpy()

    return run


def of_machine(given: dict[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    machine = vm.VirtualMachine(relay.vm.compile(network(), "llvm", params=given), tvm.cpu())
    return lambda data: machine.run(data).numpy()


@pytest.mark.parametrize("build", [of_graph, of_machine])
def test_a_library_keeps_its_weights_when_the_caller_changes_the_arrays(
    build: Callable[[dict[str, np.ndarray]], Callable[[np.ndarray], np.ndarray]],
) -> None:
    rng = np.random.default_rng(0)
    data, weight, bias = (rng.random(shape, "float32") for shape in SHAPES.values())
    expected = data @ weight.T + bias
    given = {"weight": weight, "bias": bias}
    run = build(given)
    for array in given.values():
        array[...] = np.nan
    np.testing.assert_allclose(run(data), expected, rtol=1e-4)


def test_a_build_has_one_copy_of_the_weights_beside_the_callers() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, weights = map(int, done.stdout.split())
    assert grown < 1.25 * weights  # another copy would be a whole


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_arrays_of_any_order_and_type_have_their_values(dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    values = np.arange(1024 * 1024).reshape(1024, 1024) % 13
    for given in (values.astype(kind), values.astype(kind).T, values.astype(kind)[::-1], values.astype(kind)[:, ::2]):
        weight = relay.var("weight", shape=given.shape, dtype=dtype)
        lib = relay.build(
            tvm.IRModule.from_expr(relay.Function([weight], relay.copy(weight))), "llvm", params={"weight": given}
        )
        executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        executor.run()
        np.testing.assert_array_equal(executor.get_output(0).numpy().astype("int32"), given.astype("int32"))
