"""ManifestAlloc and MemoryPlan, the operators that they write, and what the virtual machine makes of these."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.ir.op import Op
from tilewright.ir.transform import PassContext
from tilewright.relay.op import memory, vm
from tilewright.relay.transform.common import call_of
from tilewright.relay.visitor import post_order


def _fused(func: relay.Function) -> tvm.IRModule:
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
    return relay.transform.FuseOps(0)(mod)


def _calls(mod: tvm.IRModule, name: str) -> list[relay.Call]:
    funcs = [f for f in mod.functions.values() if isinstance(f, relay.Function)]
    return [e for f in funcs for e in post_order(f.body) if call_of(e, Op.get(name))]


def _machine(mod: tvm.IRModule) -> tuple[str, runtime.vm.VirtualMachine]:
    exe = relay.vm.compile(mod, "llvm")
    return exe.bytecode, runtime.vm.VirtualMachine(exe, tvm.cpu())


def _chain(steps: int, shape: tuple[int, ...]) -> relay.Function:
    """softmax after softmax, which fuse with nothing."""
    x = relay.var("x", shape=shape)
    y: relay.RelayExpr = x
    for _ in range(steps):
        y = relay.nn.softmax(y)
    return relay.Function([x], y)


def _softmax(x: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        x = np.exp(x - x.max(-1, keepdims=True))
        x = x / x.sum(-1, keepdims=True)
    return x


def test_each_kernel_gets_memory_for_its_result() -> None:
    mod = relay.transform.ManifestAlloc()(_fused(_chain(2, (3, 5))))
    assert [c.args[0].data.numpy() for c in _calls(mod, "memory.alloc_storage")] == [60, 60]
    assert [c.checked_type.concrete_shape for c in _calls(mod, "memory.alloc_tensor")] == [(3, 5), (3, 5)]
    invocations = _calls(mod, "vm.invoke_tvm_op")
    assert [call.args[0].attrs["Primitive"] for call in invocations] == [1, 1]
    assert invocations[1].args[1].fields[0] is invocations[0].args[2].fields[0]
    again = relay.fromtext(mod.astext())
    assert tvm.ir.structural_equal(relay.transform.InferType()(again), mod)


def test_what_does_not_live_at_the_same_time_shares_memory() -> None:
    planned = relay.transform.MemoryPlan()(relay.transform.ManifestAlloc()(_fused(_chain(6, (3, 5)))))
    sizes = [int(c.args[0].data.numpy()) for c in _calls(planned, "memory.alloc_storage")]
    assert sizes == [
        64 + 60,
        60,
    ]  # two live at a time; the result is by itself
    offsets = [int(c.args[1].data.numpy()) for c in _calls(planned, "memory.alloc_tensor")]
    assert offsets == [0, 64, 0, 64, 0, 0]


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (0, 4)])
def test_planned_programs_give_the_same(shape: tuple[int, ...]) -> None:
    func = _chain(5, shape)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    _, machine = _machine(tvm.IRModule.from_expr(func))
    expected = _softmax(x.astype("float64"), 5) if x.size else x
    np.testing.assert_allclose(machine.run(x).numpy(), expected, rtol=1e-5)
    with PassContext(disabled_pass=["MemoryPlan", "ManifestAlloc"]):
        code, plain = _machine(tvm.IRModule.from_expr(func))
    np.testing.assert_array_equal(plain.run(x).numpy(), machine.run(x).numpy())
    assert code.count("alloc_storage") == (5 if x.size else 0)  # nothing is computed of no elements


def test_the_machine_runs_what_the_passes_wrote_beforehand() -> None:
    mod = relay.transform.MemoryPlan()(relay.transform.ManifestAlloc()(_fused(_chain(4, (2, 6)))))
    code, machine = _machine(mod)
    x = np.random.default_rng(1).standard_normal((2, 6)).astype("float32")
    np.testing.assert_allclose(machine.run(x).numpy(), _softmax(x.astype("float64"), 4), rtol=1e-5)
    assert code.count("alloc_storage") == 2


def test_results_and_values_that_are_kept_have_memory_of_their_own() -> None:
    x = relay.var("x", shape=(4, 4))
    a = relay.nn.softmax(x)
    b = relay.nn.softmax(a)
    c = relay.nn.softmax(b)
    d = relay.nn.softmax(c)
    func = relay.Function([x], relay.Tuple([b, d]))
    _, machine = _machine(tvm.IRModule.from_expr(func))
    rng = np.random.default_rng(2)
    kept = []
    for _ in range(4):  # results of earlier runs stay what they were
        value = rng.standard_normal((4, 4)).astype("float32")
        kept.append((value, machine.run(value)))
    for value, result in kept:
        for steps, found in zip((2, 4), result, strict=True):
            np.testing.assert_allclose(found.numpy(), _softmax(value.astype("float64"), steps), rtol=1e-5)


def test_lives_that_overlap_never_share_bytes() -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        x = relay.var("x", shape=(1, int(rng.integers(1, 40))))
        values: list[relay.RelayExpr] = [x]
        for _ in range(12):
            first, second = (values[int(i)] for i in rng.integers(0, len(values), 2))
            joined = relay.concatenate(relay.Tuple([first, second]), axis=1)
            values.append(relay.nn.softmax(relay.strided_slice(joined, [0, 0], [1, int(rng.integers(1, 30))])))
        func = relay.Function([x], relay.concatenate(relay.Tuple(values[-3:]), axis=1))
        planned = relay.transform.MemoryPlan()(relay.transform.ManifestAlloc()(_fused(func)))
        _check_lives(planned["main"].body)


def _check_lives(chain: relay.RelayExpr) -> None:
    """By the text alone: tensors of one piece of memory whose uses overlap in time lie apart."""
    places: dict[relay.Var, tuple[relay.Var, int, int]] = {}
    lives: dict[relay.Var, list[int]] = {}
    step = 0
    while isinstance(chain, relay.Let):
        if alloc := call_of(chain.value, memory.AllocTensor.op):
            size = int(np.prod(alloc.checked_type.concrete_shape)) * 4
            places[chain.var] = (alloc.args[0], int(alloc.args[1].data.numpy()), size)
            lives[chain.var] = [step, step]
        for part in post_order(chain.value):
            if part in lives:
                lives[part][1] = step
        chain, step = chain.body, step + 1
    for part in post_order(chain):
        if part in lives:
            lives[part][1] = step
    shared = 0
    for a, b in itertools.combinations(places, 2):
        (home, start, size), (other, begin, length) = places[a], places[b]
        if home is other and lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]:
            assert start + size <= begin or begin + length <= start
        shared += home is other
    assert shared


def test_memory_does_not_reach_across_a_call_of_a_function() -> None:
    mod = relay.fromtext("""#[version = "0.0.5"]
    def @main(%n: int32, %x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
      if (equal(%n, 0)) { %x } else {
        let %a = nn.softmax(%x);
        let %b = nn.softmax(%a);
        let %c = nn.softmax(%b);
        let %r = @main(subtract(%n, 1), %c);
        let %d = nn.softmax(%r);
        let %e = nn.softmax(%d);
        nn.softmax(add(%e, %b))
      }
    }""")
    code, machine = _machine(mod)
    x = np.random.default_rng(4).standard_normal((2, 3)).astype("float32")

    def reference(n: int, value: np.ndarray) -> np.ndarray:
        if n == 0:
            return value
        b = _softmax(value, 2)
        return _softmax(_softmax(reference(n - 1, _softmax(b, 1)), 2) + b, 1)

    np.testing.assert_allclose(machine.run(5, x).numpy(), reference(5, x.astype("float64")), rtol=1e-5)
    call = code.index("invoke @") if "invoke @" in code else re.search(r"# invoke ", code).start()
    assert "alloc_storage" in code[:call] and "alloc_storage" in code[call:]


def test_kernels_of_several_results() -> None:
    x = relay.var("x", shape=(6, 4))
    parts = relay.split(relay.nn.softmax(x), 3)
    func = relay.Function([x], relay.Tuple([relay.nn.softmax(parts[1]), parts[2]]))
    _, machine = _machine(tvm.IRModule.from_expr(func))
    value = np.random.default_rng(5).standard_normal((6, 4)).astype("float32")
    first, second = machine.run(value)
    whole = _softmax(value.astype("float64"), 1)
    np.testing.assert_allclose(first.numpy(), _softmax(whole[2:4], 1), rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), whole[4:], rtol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_shapes_and_memory_by_hand(rows: int) -> None:
    """What ManifestAlloc leaves to the compiler can be written out, too: a shape function, and memory by its answer."""
    x = relay.var("x", relay.TensorType((relay.Any(), 3), "float32"))
    p = relay.var("p", relay.TensorType((relay.Any(), 3), "float32"))
    kernel = relay.Function([p], relay.nn.softmax(p), attrs={"Primitive": 1})
    shape, storage, out, wide = (relay.var(n) for n in ("shape", "storage", "out", "wide"))
    one = relay.const(np.array([2], "int64"))
    bytes_of = relay.const(4096, "int64")
    steps = [
        (wide, memory.alloc_storage(relay.const(64, "int64"), relay.const(64, "int64"), tvm.cpu(), "int64")),
        (shape, memory.alloc_tensor(wide, relay.const(0, "int64"), one, "int64")),
        (relay.var("done"), vm.shape_func(kernel, relay.Tuple([vm.shape_of(x)]), relay.Tuple([shape]), [False])),
        (storage, memory.alloc_storage(bytes_of, relay.const(64, "int64"), tvm.cpu(), "float32")),
        (out, memory.alloc_tensor(storage, relay.const(0, "int64"), shape, "float32", [relay.Any(), 3])),
        (relay.var("done"), vm.invoke_tvm_op(kernel, relay.Tuple([x]), relay.Tuple([out]))),
        (relay.var("gone"), memory.kill(storage)),
    ]
    body: relay.RelayExpr = vm.reshape_tensor(out, relay.const(np.array([3, rows], "int64")), [3, relay.Any()])
    for var, value in reversed(steps):
        body = relay.Let(var, value, body)
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    mod.import_from_std("core.rly")
    _, machine = _machine(mod)
    data = np.random.default_rng(rows).standard_normal((rows, 3)).astype("float32")
    expected = _softmax(data.astype("float64"), 1).reshape(3, rows) if rows else np.zeros((3, 0))
    np.testing.assert_allclose(machine.run(data).numpy(), expected, rtol=1e-5)


def test_the_interpreter_knows_shapes_and_reshapes() -> None:
    x = relay.var("x", relay.TensorType((relay.Any(), 3), "float32"))
    back = vm.reshape_tensor(x, relay.const(np.array([3, 2], "int64")), [3, 2])
    run = relay.create_executor(
        "debug", tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([vm.shape_of(x), back])))
    )
    data = np.arange(6, dtype="float32").reshape(2, 3)
    shape, reshaped = run.evaluate()(data)
    assert shape.numpy().tolist() == [2, 3] and shape.dtype == "int64"
    np.testing.assert_array_equal(reshaped.numpy(), data.reshape(3, 2))


def test_values_of_nested_tuples_are_taken_apart_and_put_together() -> None:
    scalar, vector = relay.TensorType((), "int32"), relay.TensorType((3,), "float32")
    type_ = relay.TupleType([scalar, relay.TupleType([vector, scalar]), relay.TupleType([])])
    assert memory.flatten_tuple_type(type_) == [scalar, vector, scalar]
    x = relay.var("x", type_)
    parts = memory.from_tuple_type(type_, x)
    assert [str(part) for part in parts] == ["free_var %x: (int32, (Tensor[(3), float32], int32), ());\n" + t for t in
                                             ("%x.0", "%0 = %x.1;\n%0.0", "%0 = %x.1;\n%0.1")]  # fmt: skip
    whole = memory.to_tuple_type(type_, parts)
    assert relay.transform.InferTypeLocal(whole) == type_
    with pytest.raises(ValueError, match="is made of 3 tensors, got 2"):
        memory.to_tuple_type(type_, parts[:2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: memory.alloc_storage(x, relay.const(64, "int64"), tvm.cpu()), "size should be an integer scalar"),
        (lambda x: memory.alloc_tensor(x, relay.const(0, "int64"), relay.const([2])), r"storage should be Storage"),
        (lambda x: vm.invoke_tvm_op(x, x, relay.Tuple([x])), "inputs of a kernel should be a tuple"),
        (lambda x: vm.shape_of(relay.Tuple([x])), "vm.shape_of: expected a tensor, found"),
    ],
)
def test_wrong_arguments_are_named(make: object, message: str) -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], make(x)))  # type: ignore[operator]
    mod.import_from_std("core.rly")
    with pytest.raises(tvm.TVMError, match=message):
        relay.transform.InferType()(mod)


def test_several_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="runs on one device; got 2 targets"):
        relay.transform.ManifestAlloc("llvm", {1: "llvm", 2: "cuda"})
