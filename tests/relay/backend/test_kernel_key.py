"""Kernels that an earlier build lowered come from the cache, and only where nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, topi
from tilewright.autotvm.task.dispatcher import ApplyConfig, DispatchContext
from tilewright.autotvm.task.space import FallbackConfigEntity
from tilewright.contrib import graph_executor
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.op import Op, register_op_attr
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import PassContext
from tilewright.relay.backend import kernel_key
from tilewright.target import Target
from tilewright.target.generic_func import GenericFunc
from tilewright.target.own_code import is_own

pytestmark = pytest.mark.unverified  # passes that are watched run

TARGET = "llvm -mcpu=x86-64"
SOFTMAX = "tvmgen_default_fused_nn_softmax"


def _forget_what_other_tests_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GenericFunc, "foreign_keys", set())
    monkeypatch.setattr(kernel_key, "CUSTOM_TYPES", {})
    for op in Op.registry.values():
        for name, (rule, *_) in list(op.attrs.items()):
            if name.endswith(kernel_key._RULE) and not is_own(rule):
                monkeypatch.delitem(op.attrs, name)


@pytest.fixture
def lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were lowered, with a cache that is empty at first."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    _forget_what_other_tests_registered(monkeypatch)
    names: list[str] = []
    lower = kernel_key.lower_primitive

    def watched(func: relay.Function, target: Target, name: Callable[[str], str]) -> Any:
        made = lower(func, target, name)
        names.append(made.prim_fn_var.name_hint)
        return made

    monkeypatch.setattr(kernel_key, "lower_primitive", watched)
    return names


def network(width: int = 5) -> relay.Function:
    x = relay.var("x", shape=(3, width))
    return relay.Function([x], relay.nn.softmax(relay.nn.softmax(x, axis=0)))


def build(func: relay.Function | None = None, target: str = TARGET, **config: Any) -> Any:
    with PassContext(opt_level=3, config={"relay.backend.keep_lowered": True} | config):
        return relay.build(func or network(), target)


def source(built: Any) -> str:
    return str(built.get_lib().get_source("ll"))


def test_the_second_build_lowers_nothing_and_is_the_same(lowered: list[str]) -> None:
    first = build()
    assert len(lowered) == 2
    second = build()
    assert source(second) == source(first)
    assert second.get_graph_json() == first.get_graph_json()
    for name, info in first.function_metadata.items():
        other = second.function_metadata[name]
        assert (other.workspace_sizes, other.io_sizes) == (info.workspace_sizes, info.io_sizes)
    assert len(lowered) == 2


def test_a_kernel_from_the_cache_computes(lowered: list[str]) -> None:
    build()
    model = graph_executor.GraphModule(build()["default"](tvm.cpu()))
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
    model.set_input("x", x)
    model.run()
    e = np.exp(x.astype("float64"))
    e = np.exp(e / e.sum(0))
    np.testing.assert_allclose(model.get_output(0).numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_the_body_of_a_kernel_from_the_cache_is_lowered_when_it_is_read(lowered: list[str]) -> None:
    target = Target(TARGET)
    first, second = (b.function_metadata[SOFTMAX].tir_primfuncs[target] for b in (build(), build()))
    assert len(lowered) == 2
    assert structural_equal(first, second)
    assert lowered[2:] == [SOFTMAX]


@pytest.mark.parametrize(
    "other",
    [
        {"func": network(6)},
        {"target": "llvm -mcpu=x86-64-v3"},
        {"tir.disable_vectorize": True},
    ],
    ids=["shape", "target", "option"],
)
def test_another_kernel_is_lowered(lowered: list[str], other: dict[str, Any]) -> None:
    build()
    lowered.clear()
    build(**other)
    assert SOFTMAX in lowered


def test_source_that_changed_or_is_not_there_lowers_again(lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    build()
    for digest, expected in (("another", 2), ("another", 0), (None, 2), (None, 2)):
        lowered.clear()
        monkeypatch.setattr(kernel_key, "source_digest", lambda digest=digest: digest)
        build()
        assert len(lowered) == expected


def test_damaged_entries_are_made_again(lowered: list[str], tmp_path: Path) -> None:
    first = build()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    lowered.clear()
    assert source(build()) == source(first)
    assert len(lowered) == 2


class _Records(DispatchContext):
    """Records that are known by a text, or not at all."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def records_text(self) -> str | None:
        return self.text


def test_other_records_lower_again(lowered: list[str]) -> None:
    build()
    for records, expected in (("a", 2), ("a", 0), ("b", 2), (None, 2), (None, 2)):
        lowered.clear()
        with _Records(records):
            build()
        assert len(lowered) == expected
    lowered.clear()
    with ApplyConfig(FallbackConfigEntity()):
        build()
    assert len(lowered) == 2


def test_instruments_see_the_passes_of_every_build(lowered: list[str]) -> None:
    class Seen(PassInstrument):
        def run_before_pass(self, mod: Any, info: Any) -> None:
            names.append(info.name)

    counts = []
    for _ in range(2):
        names: list[str] = []
        with PassContext(config={"relay.backend.keep_lowered": True}, instruments=[Seen()]):
            relay.build(network(), TARGET)
        counts.append(sum("StorageRewrite" in name for name in names))
    assert counts == [2, 2]


def test_what_others_registered_is_lowered_each_time(lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = "test.kernel_key.twice"
    Op.get_or_register(name).add_type_rel("Identity")
    register_op_attr(name, "FTVMCompute", lambda attrs, inputs, out: [topi.multiply(inputs[0], 2.0)])
    register_op_attr(name, "TOpPattern", relay.op.OpPattern.ELEMWISE)
    x = relay.var("x", shape=(9,))
    twice = relay.Function([x], relay.Call(Op.get(name), [x]))
    build(twice)
    build(twice)
    assert len(lowered) == 2

    monkeypatch.setattr(GenericFunc, "foreign_keys", set())
    made = GenericFunc("made", lambda: None)
    made.register("cpu", lambda: 1)
    assert GenericFunc.foreign_keys == {"cpu"}
    lowered.clear()
    build()
    build()
    assert len(lowered) == 4


def test_kernels_of_unknown_shapes_are_lowered_each_time(lowered: list[str]) -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    func = relay.Function([x], relay.nn.relu(x))
    for _ in range(2):
        with PassContext(config={"relay.backend.keep_lowered": True}):
            program = relay.vm.compile(func, TARGET)
        run = tvm.runtime.vm.VirtualMachine(program, tvm.cpu())
        given = np.array([[-1, 2, -3], [4, -5, 6]], "float32")
        np.testing.assert_array_equal(run.run(given).numpy(), np.maximum(given, 0))
    assert len(lowered) == 2
