"""What runs on which target: strategies, schedules, layouts and legal forms, registered by target key."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relay.op.harness import Case, check_kernels, random, typed
from tests.relay.op.test_every_operator import TABLES

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.contrib import graph_executor
from tilewright.ir.op import Op
from tilewright.relay.backend.te_compiler import get_valid_implementations
from tilewright.relay.op import strategy
from tilewright.relay.op.strategy import OpStrategy, wrap_compute_conv2d, wrap_topi_schedule
from tilewright.target import GenericFunc, Target
from tilewright.te.lower import schedule_to_primfunc
from tilewright.te.schedule.stage import AttachType
from tilewright.tir.stmt import ForKind
from tilewright.tir.visitor import post_order_visit

PLAIN = "llvm -keys=plain"  # machine code of this machine by schedules of any
SEEN = "tests_strategy"  # the key for which the tests below register
OWN = f"llvm -keys={SEEN}"


@pytest.fixture
def registered() -> Iterator[Any]:
    """``registered(generic, func)`` registers for ``SEEN`` until the test is over."""
    touched: list[GenericFunc] = []

    def register(generic: GenericFunc, func: Any) -> None:
        touched.append(generic)
        generic.register(SEEN, func)

    yield register
    for generic in touched:
        del generic.dispatch_dict[SEEN]


def built(expr: relay.Expr, target: str, *inputs: np.ndarray) -> tuple[Any, np.ndarray]:
    """The library of a function of ``expr``'s variables, and what it computes from ``inputs``."""
    params = relay.analysis.free_vars(expr)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function(params, expr)), target)
    run = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    run.set_input(**{p.name_hint: a for p, a in zip(params, inputs, strict=True)})
    run.run()
    return lib, run.get_output(0).numpy()


def loop_kinds(schedule: te.Schedule, tensors: Sequence[te.Tensor]) -> set[ForKind]:
    """The kinds of the loops of a schedule."""
    kinds: set[ForKind] = set()

    def visit(node: Any) -> None:
        if isinstance(node, tvm.tir.For):
            kinds.add(node.kind)

    post_order_visit(schedule_to_primfunc(schedule, list(tensors), "kernel").body, visit)
    return kinds


def of_each_operator(table: Sequence[Case]) -> list[Case]:
    """One case for each operator of the table that has a strategy or a schedule; all of nn.conv2d, which has forms."""
    found: dict[Any, Case] = {}
    for item in table:
        call = typed(item)[1]
        while not isinstance(call, relay.Call):
            call = call.fields[0] if isinstance(call, relay.Tuple) else call.tuple_value
        if call.op.has_attr("FTVMStrategy") or call.op.has_attr("FTVMSchedule"):
            attrs: Any = call.attrs
            form = (attrs.data_layout, attrs.kernel_layout, attrs.groups) if call.op.name == "nn.conv2d" else ()
            if item.kernel and all(e.size for e in item.results):
                found.setdefault((call.op.name, form), item)
    return list(found.values())


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_a_key_with_nothing_registered_computes_by_plain_loops(table: Any) -> None:
    check_kernels([table[0], *of_each_operator(table)], PLAIN)


def test_the_generic_strategy_is_for_targets_without_one() -> None:
    data, weight = te.placeholder((1, 3, 8, 8)), te.placeholder((4, 3, 3, 3))
    attrs = relay.nn.conv2d(relay.var("x"), relay.var("w")).attrs
    out = relay.TensorType((1, 4, 6, 6))
    names = {
        target: [
            i.name for i in get_valid_implementations(Op.get("nn.conv2d"), attrs, [data, weight], out, Target(target))
        ]
        for target in ("llvm", "c", "llvm -device=arm_cpu", "ext_dev", PLAIN, "cuda")
    }
    assert names == {
        "llvm": ["conv2d_nchw.cpu"],
        "c": ["conv2d_nchw.cpu"],
        "llvm -device=arm_cpu": ["conv2d_nchw.cpu"],
        "ext_dev": ["conv2d_nchw.generic"],
        PLAIN: ["conv2d_nchw.generic"],
        "cuda": ["conv2d_nchw.cuda", "conv2d_nchw_winograd.cuda"],
    }


def test_a_network_for_an_unknown_key_is_generic_throughout() -> None:
    x, w, d = relay.var("x", shape=(1, 3, 9, 9)), random(4, 3, 3, 3), random(5, 4 * 7 * 7, seed=1)
    body = relay.nn.relu(relay.nn.conv2d(x, relay.const(w)))
    out = relay.nn.softmax(relay.nn.dense(relay.nn.batch_flatten(body), relay.const(d)))
    data = random(1, 3, 9, 9, seed=2)
    lib, found = built(out, "c -keys=plain", data)
    names = {name for name in lib.build_report.implementations.values() if "." in name and "nn." not in name}
    assert names == {"conv2d_nchw.generic", "dense.generic", "softmax.generic"}
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(2, 3))
    hidden = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w), 0).reshape(1, -1) @ d.T
    powers = np.exp(hidden - hidden.max())
    np.testing.assert_allclose(found, powers / powers.sum(), rtol=1e-5)


def test_generic_schedules_have_serial_loops_only() -> None:
    x = te.placeholder((64, 1024), name="x")
    y = topi.nn.relu(topi.exp(x))
    total = topi.sum(y, axis=1)
    assert loop_kinds(topi.generic.schedule_injective([y]), [x, y]) == {ForKind.SERIAL}
    assert loop_kinds(topi.generic.schedule_reduce([total]), [x, total]) == {ForKind.SERIAL}
    with Target("llvm"):
        assert loop_kinds(topi.cpu.schedule_injective([y]), [x, y]) != {ForKind.SERIAL}
    inlined = [s for s in topi.generic.schedule_injective([y]).stages if s.attach_type == AttachType.INLINE]
    assert len(inlined) == 1


def test_a_registered_schedule_is_used_for_kernels_of_that_key(registered: Any) -> None:
    used: list[str] = []

    def schedule(attrs: Any, outs: Sequence[Any], target: Any) -> Any:
        used.append(outs[0].op.name)
        return topi.generic.schedule_injective(outs)

    registered(strategy.schedule_injective, schedule)
    x, data = relay.var("x", shape=(2, 5)), random(2, 5)
    np.testing.assert_allclose(built(relay.exp(x), OWN, data)[1], np.exp(data), rtol=1e-6)
    assert len(used) == 1
    built(relay.exp(x), "llvm", data)
    built(relay.exp(x), PLAIN, data)
    assert len(used) == 1
    # concatenate and transpose have doors of their own, which open on that of all injective kernels
    joined = relay.concatenate([relay.transpose(x), relay.var("y", shape=(5, 3))], 1)
    found = built(joined, OWN, data, random(5, 3))[1]
    np.testing.assert_array_equal(found, np.concatenate([data.T, random(5, 3)], 1))
    assert len(used) > 1


def test_a_registered_strategy_is_used_for_that_key(registered: Any) -> None:
    def twice(*args: Any) -> Any:
        return topi.multiply(topi.nn.conv2d_nchw(*args), 2.0)

    def conv2d_strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target) -> OpStrategy:
        assert Target.current() == target
        made = OpStrategy()
        made.add_implementation(
            wrap_compute_conv2d(twice), wrap_topi_schedule(topi.generic.schedule_extern), "twice.own"
        )
        return made

    registered(strategy.conv2d_strategy, conv2d_strategy)
    x, w = relay.var("x", shape=(1, 2, 5, 5)), relay.var("w", shape=(3, 2, 1, 1))
    data, weight = random(1, 2, 5, 5), random(3, 2, 1, 1)
    lib, found = built(relay.nn.conv2d(x, w), OWN, data, weight)
    assert list(lib.build_report.implementations.values()) == ["twice.own"]
    np.testing.assert_allclose(found, 2 * np.einsum("nchw,oc->nohw", data, weight[:, :, 0, 0]), rtol=1e-5, atol=1e-6)


def test_registered_layouts_and_legal_forms_are_used_for_that_key(registered: Any) -> None:
    def channels_last(attrs: Any, inputs: Sequence[Any], tinfos: Sequence[Any], out_type: Any) -> Any:
        assert [tuple(t.concrete_shape) for t in tinfos] == [(1, 2, 5, 5), (3, 2, 1, 1)]
        return relay.nn.conv2d(*inputs, kernel_size=(1, 1), channels=3, data_layout="NHWC", kernel_layout="HWIO")

    def as_matmul(attrs: Any, inputs: Sequence[Any], types: Sequence[Any]) -> Any:
        return relay.nn.matmul(*inputs, transpose_b=True)

    registered(topi.nn.conv2d_alter_layout, channels_last)
    x, w = relay.var("x", shape=(1, 2, 5, 5)), random(3, 2, 1, 1)
    data = random(1, 2, 5, 5)
    for target, name in ((OWN, "conv2d_nhwc.generic"), (PLAIN, "conv2d_nchw.generic")):
        lib, found = built(relay.nn.conv2d(x, relay.const(w)), target, data)
        assert name in lib.build_report.implementations.values()
        np.testing.assert_allclose(found, np.einsum("nchw,oc->nohw", data, w[:, :, 0, 0]), rtol=1e-5, atol=1e-6)

    mod = tvm.IRModule.from_expr(relay.nn.dense(relay.var("a", shape=(2, 3)), relay.var("b", shape=(4, 3))))
    registered(topi.nn.dense_legalize, as_matmul)
    for target, legal in ((OWN, "nn.matmul"), ("llvm", "nn.dense")):
        with Target(target):
            assert legal in str(relay.transform.Legalize()(relay.transform.InferType()(mod)))


def test_packing_and_padding_channels_are_matters_of_the_target() -> None:
    x, w = relay.var("x", shape=(1, 32, 6, 6)), relay.const(random(32, 32, 1, 1))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.conv2d(x, w)))
    for target, packed in (("llvm", True), (PLAIN, False), ("ext_dev", False)):
        with Target(target), tvm.transform.PassContext(opt_level=3):
            altered = relay.transform.AlterOpLayout()(mod)
            assert ("NCHWc" in str(altered)) == packed
            assert (topi.nn.conv2d_channel_lanes() is not None) == packed


def test_relay_names_the_cpus_schedules_in_the_cpus_strategies() -> None:
    folder = Path(relay.__file__).parent
    naming = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            attribute = isinstance(node, ast.Attribute) and node.attr in ("cpu", "x86", "arm_cpu")
            of_topi = attribute and isinstance(node.value, ast.Name) and node.value.id == "topi"
            faces = ("tilewright.topi.cpu", "tilewright.topi.x86", "tilewright.topi.arm_cpu")
            imported = isinstance(node, ast.ImportFrom) and (
                (node.module or "").startswith(faces)
                or any(f"{node.module}.{name.name}" in faces for name in node.names)
            )
            plain = isinstance(node, ast.Import) and any(name.name.startswith(faces) for name in node.names)
            if of_topi or imported or plain:
                naming.add(path.relative_to(folder).as_posix())
    assert "op/strategy/cpu.py" in naming
    naming.discard("op/nn/kernel_cost.py")  # what the kernels cost, by the models of their schedules
    assert all(name.startswith("op/strategy/cpu") for name in naming), naming


def test_every_strategy_is_what_its_operator_dispatches_by() -> None:
    hooks = ("FTVMStrategy", "FTVMSchedule")
    names = [n for n in Op.list_op_names() if Op.get(n).has_attr("OpDef")]
    declared = [n for n in names if Op.get(n).get_attr("OpDef").__module__.startswith("tilewright.")]
    found = [Op.get(n).get_attr(hook) for n in declared for hook in hooks if Op.get(n).has_attr(hook)]
    assert len(found) > 40
    assert all(isinstance(f, GenericFunc) and f.fdefault is not None for f in found)
