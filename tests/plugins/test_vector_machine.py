"""A target with its own code generator, and schedules for it (examples/plugins/vector_machine and ..._schedules)."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plugins.conftest import PLUGINS

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.op import strategy
from tilewright.target import kind

MACHINE, SCHEDULES = PLUGINS / "vector_machine", PLUGINS / "vector_machine_schedules"


# ---- installed, found by their entry points ----


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages installed by pip."""
    folder = tmp_path_factory.mktemp("plugins")
    copies = [shutil.copytree(source, folder / source.name) for source in (MACHINE, SCHEDULES)]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    target = folder / "site"
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), *map(str, copies)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def python(program: str, site: Path) -> str:
    """What a program prints in a new process, where the packages are installed."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BUILD = """
import sys
import tilewright as tvm
from tilewright import relay
assert not [name for name in sys.modules if name.startswith("tilewright_vecvm")]
x, w = relay.var("x", shape=(3, 5)), relay.var("w", shape=(4, 5))
lib = relay.build(tvm.IRModule.from_expr(relay.Function([x, w], relay.exp(relay.nn.dense(x, w)))), "vecvm -lanes=4")
print(lib.lib.type_key, *lib.build_report.implementations.values())
lib.export_library(PATH)
"""
RUN = """
import sys
import numpy as np
from tilewright import runtime
module = runtime.GraphModule(runtime.load_module(PATH)["default"](runtime.cpu()))
module.run(x=np.ones((3, 5), "float32"), w=np.full((4, 5), 0.1, "float32"))
print(module.get_output(0).numpy().ravel().tolist())
print([name for name in ("tilewright.target", "tilewright.relay", "tilewright_vecvm.codegen") if name in sys.modules])
"""


def test_installed_packages_bring_the_target_its_schedules_and_its_loader(site: Path, tmp_path: Path) -> None:
    head = f"PATH = {str(tmp_path / 'network.so')!r}\n"
    assert python(head + BUILD, site) == "vecvm dense.vecvm\n"
    outputs, compiler = python(head + RUN, site).splitlines()
    np.testing.assert_allclose(eval(outputs), np.exp([0.5] * 12), rtol=1e-5)
    assert compiler == "[]"  # a deployed program loads the machine, and nothing that compiles for it
    with pytest.raises(tvm.TVMError, match='a module of type "vecvm", and nothing here can load it'):
        tvm.runtime.load_module(tmp_path / "network.so")


# ---- the code generator ----


@pytest.fixture
def vecvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package's modules, registered for one test."""
    monkeypatch.setattr(kind, "_kinds", dict(kind._kinds))
    monkeypatch.syspath_prepend(MACHINE / "src")
    target, machine = (importlib.import_module(f"tilewright_vecvm.{name}") for name in ("target", "machine"))
    target.register()
    machine.register()
    yield machine
    for name in ("target.build.vecvm", "runtime.module.loadbinary_vecvm", "runtime.module.loadfile_vecvm"):
        tvm.runtime.remove_global_func(name)


@pytest.fixture
def schedules(vecvm: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The schedules' package, registered for one test."""
    monkeypatch.syspath_prepend(SCHEDULES / "src")
    importlib.import_module("tilewright_vecvm_schedules").register()
    yield
    for generic in (strategy.schedule_injective, strategy.dense_strategy):
        del generic.dispatch_dict["vecvm"]


def check(outputs: te.Tensor, expected: Any, *inputs: tuple[te.Tensor, np.ndarray], lanes: int = 0) -> None:
    """Build the computation, of vectors when ``lanes`` is given, and compare what it gives."""
    s = te.create_schedule(outputs.op)
    if lanes:
        s[outputs].vectorize(s[outputs].split(outputs.op.axis[-1], factor=lanes)[1])
    built = tvm.build(s, [*(tensor for tensor, _ in inputs), outputs], "vecvm")
    out = tvm.nd.array(np.zeros(np.shape(expected), np.asarray(expected).dtype))
    built(*(tvm.nd.array(array) for _, array in inputs), out)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("lanes", [0, 4])
@pytest.mark.parametrize("n", [1, 3, 4, 17])
def test_arithmetic_of_every_kind(vecvm: Any, n: int, lanes: int) -> None:
    rng = np.random.default_rng(n)
    x, i = rng.standard_normal((2, n)).astype("float32"), rng.integers(-20, 20, (2, n)).astype("int32")
    a, b = te.placeholder((2, n), name="a"), te.placeholder((2, n), "int32", name="b")

    def float_part(r: Any, c: Any) -> Any:
        value = te.exp(a[r, c]) * 2.0 - te.tanh(a[r, c]) / 3.0
        return te.if_then_else(c < n - 1, te.max(value, 1.0), te.sqrt(te.abs(a[r, c])))

    expected = np.maximum(np.exp(x) * 2 - np.tanh(x) / 3, 1)
    expected[:, -1] = np.sqrt(np.abs(x[:, -1]))
    check(te.compute((2, n), float_part, name="f"), expected.astype("float32"), (a, x), lanes=lanes)

    def int_part(r: Any, c: Any) -> Any:
        e = b[r, c]
        truncated = tvm.tir.truncdiv(e, 3) * 100 + tvm.tir.truncmod(e, 3)
        chosen = tvm.tir.Select(tvm.tir.all(e > -5, tvm.tir.Not(e == 2)), tvm.tir.floordiv(e, 4), te.min(e, r))
        return truncated + chosen * 7 + tvm.tir.floormod(e, 4)

    quotient = np.trunc(i / 3).astype("int32")
    chosen = np.where((i > -5) & (i != 2), i // 4, np.minimum(i, np.arange(2)[:, None]))
    total = quotient * 100 + (i - 3 * quotient) + chosen * 7 + i % 4
    check(te.compute((2, n), int_part, name="g"), total.astype("int32"), (b, i), lanes=lanes)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int64", "float64"])
def test_casts(vecvm: Any, dtype: str) -> None:
    x = np.array([0, 1, 3.7, 100.2], "float32")
    a = te.placeholder((4,), name="a")
    check(te.compute((4,), lambda i: a[i].astype(dtype), name="c"), x.astype(dtype), (a, x))


def test_reductions_and_memory_of_its_own(vecvm: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 7)).astype("float32")
    a, k = te.placeholder((3, 7), name="a"), te.reduce_axis((0, 7), "k")
    doubled = te.compute((3, 7), lambda i, j: a[i, j] * 2.0, name="doubled")
    check(te.compute((3,), lambda i: te.max(doubled[i, k], axis=k), name="m"), (2 * x).max(1), (a, x))


def test_nothing_is_computed_of_nothing(vecvm: Any) -> None:
    a = te.placeholder((0,), name="a")
    check(te.compute((0,), lambda i: a[i] + 1.0, name="b"), np.zeros(0, "float32"), (a, np.zeros(0, "float32")))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda a: te.compute((4,), lambda i: te.erf(a[i]), name="f"),
            r"run kernel: .* no instruction for tir.erf",
        ),
        (lambda a: te.compute((4,), lambda i: a[i].astype("float16"), name="f"), "for the type float16"),
    ],
)
def test_what_the_machine_cannot_do_is_refused_by_name(vecvm: Any, make: Any, message: str) -> None:
    a = te.placeholder((4,), name="a")
    out = make(a)
    with pytest.raises(UnsupportedError, match=message):
        tvm.build(te.create_schedule(out.op), [a, out], "vecvm", name="kernel")


def test_the_target_counts_as_enabled(vecvm: Any) -> None:
    assert tvm.runtime.enabled("vecvm -lanes=4")
    assert tvm.device(tvm.target.Target("vecvm"), 0) == tvm.cpu(0)


def test_shapes_must_be_known(vecvm: Any) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    with pytest.raises(UnsupportedError, match="the parameter a, which is no tensor of known shape"):
        tvm.build(te.create_schedule(b.op), [a, b], "vecvm", name="kernel")


def test_arguments_are_checked(vecvm: Any) -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    built = tvm.build(te.create_schedule(b.op), [a, b], "vecvm", name="add")
    with pytest.raises(TypeError, match="add takes 2 tensors, got 1"):
        built(tvm.nd.empty((4,)))
    with pytest.raises(TypeError, match="add: argument 1: expected 4 elements of float32, found 5 of float32"):
        built(tvm.nd.empty((4,)), tvm.nd.empty((5,)))


def test_a_module_is_a_file_of_its_own_and_a_text(vecvm: Any, tmp_path: Path) -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.5, name="b")
    built = tvm.build(te.create_schedule(b.op), [a, b], "vecvm", name="add")
    built.save(tmp_path / "add.vecvm")
    loaded = tvm.runtime.load_module(tmp_path / "add.vecvm")
    out = tvm.nd.empty((4,))
    loaded(tvm.nd.array(np.arange(4, dtype="float32")), out)
    np.testing.assert_array_equal(out.numpy(), np.arange(4) + 1.5)
    assert loaded.get_source() == built.get_source()
    assert loaded.get_source().splitlines()[0] == "add(float32[4], float32[4])"


# ---- networks ----


def network() -> tuple[tvm.IRModule, np.ndarray, np.ndarray]:
    """Two dense layers and what is around them, an input, and what numpy computes of it."""
    rng = np.random.default_rng(0)
    w, v, bias = (rng.standard_normal(shape).astype("float32") for shape in ((70, 6), (9, 70), (70,)))
    x = relay.var("x", shape=(2, 6))
    hidden = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, relay.const(w)), relay.const(bias)))
    out = relay.nn.softmax(relay.nn.dense(hidden, relay.const(v)))
    data = rng.standard_normal((2, 6)).astype("float32")
    scores = np.maximum(data @ w.T + bias, 0) @ v.T
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return tvm.IRModule.from_expr(relay.Function([x], out)), data, powers / powers.sum(1, keepdims=True)


def instructions(target: str) -> int:
    """Check the network on the target; how many instructions that took."""
    mod, data, expected = network()
    lib = relay.build(mod, target)
    run = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    run.run(x=data)
    np.testing.assert_allclose(run.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-7)
    return int(lib.get_lib()["instructions_executed"]())


def test_a_network_is_right_without_a_schedule(vecvm: Any) -> None:
    instructions("vecvm")


def test_schedules_make_vectors(schedules: None, vecvm: Any) -> None:
    wide = instructions("vecvm -lanes=64")
    narrow = instructions("vecvm -lanes=4")
    del strategy.dense_strategy.dispatch_dict["vecvm"], strategy.schedule_injective.dispatch_dict["vecvm"]
    plain = instructions("vecvm")
    importlib.import_module("tilewright_vecvm_schedules").register()
    assert wide < narrow < plain / 2


def test_a_network_is_right_with_the_schedules(schedules: None) -> None:
    mod, _, _ = network()
    lib = relay.build(mod, "vecvm")
    names = list(lib.build_report.implementations.values())
    assert names == ["dense.vecvm", "dense.vecvm", "softmax.generic"]
    assert "x64" in lib.get_lib().get_source()


def test_kernels_of_two_targets_are_one_library(schedules: None, tmp_path: Path) -> None:
    a = te.placeholder((8,), name="a")
    mod = tvm.IRModule()
    for name, amount, target in (("here", 1.0, "llvm"), ("there", 2.0, "vecvm")):
        b = te.compute((8,), lambda i, amount=amount: a[i] + amount, name="b")
        mod.update(tvm.lower(te.create_schedule(b.op), [a, b], name=name))
        mod[name] = mod[name].with_attr("target", tvm.target.Target(target))
    built = tvm.build(mod, target="llvm")
    loaded = tvm.runtime.load_module(built.export_library(tmp_path / "both.so"))
    for module in (built, loaded):
        for name, amount in (("here", 1), ("there", 2)):
            out = tvm.nd.empty((8,))
            module.get_function(name, query_imports=True)(tvm.nd.array(np.zeros(8, "float32")), out)
            np.testing.assert_array_equal(out.numpy(), amount)
