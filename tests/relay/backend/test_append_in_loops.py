"""What a loop of a program carries and appends to grows in place; ONNX's reference or numpy tells what it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.runtime.vm import Executable, VirtualMachine, with_capacity

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(9)
APPEND = "tilewright.vm.append"


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def machine_of(exe: Executable) -> VirtualMachine:
    return VirtualMachine(Executable.load_exec(*exe.save()), tvm.cpu())


def compiled(text: str, dims: Any = None) -> tuple[onnx.ModelProto, Executable]:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text)
    mod, params = relay.frontend.from_onnx(model, dims=dims or {})
    with tvm.transform.PassContext(opt_level=3):
        return model, relay.vm.compile(mod, "llvm", params=params)


def check(model: onnx.ModelProto, machine: VirtualMachine, feeds: dict[str, Array]) -> None:
    """All outputs, to 1e-4, and that inputs stay as they are."""
    kept = {name: value.copy() for name, value in feeds.items()}
    wanted = ReferenceEvaluator(model).run(None, feeds)
    result = machine.run(*feeds.values())
    found = [result] if isinstance(result, runtime.NDArray) else list(result)
    for have, want in zip(found, wanted, strict=True):
        assert have.shape == want.shape and have.is_contiguous
        np.testing.assert_allclose(have.numpy(), want, rtol=1e-4, atol=1e-4)
    for name, value in feeds.items():
        np.testing.assert_array_equal(value, kept[name])


def appends(exe: Executable) -> int:
    """How many instructions of a program append."""
    if APPEND not in exe.primitive_ops:
        return 0
    index = exe.primitive_ops.index(APPEND)
    return sum(f": 4 {index} " in line.split("#")[0] for line in exe.bytecode.splitlines())


ROWS = """g (int64 n, float[p, 3] x) => (float[q, 3] y, float[m, 1] z) <float[1, 3] one = {1, 2, 3}> {
  c = Constant<value = bool {1}>()
  y, z = Loop(n, c, x) <body = l (int64 i, bool ci, float[q, 3] a) => (bool co, float[r, 3] b, float[1] s) {
    co = Identity(ci)
    f = Cast<to = 1>(i)
    row = Add(one, f)
    b = Concat<axis = 0>(a, row)
    t = ReduceSum<keepdims = 0>(b)
    u = ReduceMax<keepdims = 0>(b)
    k = Constant<value = int64[1] {1}>()
    v = Mul(t, u)
    s = Reshape(v, k)
  }>
}"""


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_rows_that_are_carried_and_collected(rows: int) -> None:
    model, exe = compiled(ROWS, {"p": (0, 50)})
    assert appends(exe) == 2
    machine = machine_of(exe)
    for rounds in (1, 23):
        check(model, machine, {"n": np.array(rounds), "x": floats(rows, 3)})
    x = floats(rows, 3)
    same, none = machine.run(np.array(0), x)  # of no round at all ONNX's reference knows nothing to collect
    np.testing.assert_array_equal(same.numpy(), x)
    assert none.shape == (0, 1)


CACHES = """g (int64 n, float[2, 1, 6] x, float[2, 3, p, 2] k, float[2, 3, p, 2] v)
    => (float[2, 1, 6] y, float[2, 3, q, 2] kn, float[2, 3, q, 2] vn)
    <int64[4] split = {2, 1, 3, 2}, int64[3] join = {2, 1, 6}> {
  c = Constant<value = bool {1}>()
  y, kn, vn = Loop(n, c, x, k, v) <
      body = l (int64 i, bool ci, float[2, 1, 6] a, float[2, 3, q, 2] ko, float[2, 3, q, 2] vo)
      => (bool co, float[2, 1, 6] b, float[2, 3, r, 2] kk, float[2, 3, r, 2] vv) {
    co = Identity(ci)
    parts = Reshape(a, split)
    heads = Transpose<perm = [0, 2, 1, 3]>(parts)
    kk = Concat<axis = 2>(ko, heads)
    double = Add(heads, heads)
    vv = Concat<axis = 2>(vo, double)
    turned = Transpose<perm = [0, 1, 3, 2]>(kk)
    products = MatMul(heads, turned)
    weights = Softmax<axis = -1>(products)
    mixed = MatMul(weights, vv)
    before = ReduceSum(ko)
    more = Add(mixed, before)
    small = Tanh(more)
    back = Transpose<perm = [0, 2, 1, 3]>(small)
    b = Reshape(back, join)
  }>
}"""


@pytest.mark.parametrize("dims", [None, {"p": (0, 50)}])
def test_caches_of_attention(dims: Any) -> None:
    """Two caches, with strides; what they were is read after they grew."""
    model, exe = compiled(CACHES, dims)
    assert appends(exe) == 2
    machine = machine_of(exe)
    for rounds, past in ((1, 1), (0, 3), (19, 2), (7, 13)):
        check(
            model,
            machine,
            {"n": np.array(rounds), "x": floats(2, 1, 6), "k": floats(2, 3, past, 2), "v": floats(2, 3, past, 2)},
        )


BRANCHES = """g (int64 n, float[2, p] x) => (float[2, q] y, float[m, 2] z) {
  c = Constant<value = bool {1}>()
  y, z = Loop(n, c, x) <body = l (int64 i, bool ci, float[2, q] a) => (bool co, float[2, r] b, float[2] s) {
    co = Identity(ci)
    two = Constant<value = int64 {2}>()
    rest = Mod(i, two)
    odd = Cast<to = 9>(rest)
    column = Constant<value = float[2, 1] {5, 6}>()
    zero = Constant<value = float[2, 1] {7, 8}>()
    other = Concat<axis = 1>(a, zero)
    b = If(odd) <
      then_branch = t () => (float[2, r] one) { one = Concat<axis = 1>(a, column, zero) },
      else_branch = e () => (float[2, r] same) { same = Identity(a) }>
    axis = Constant<value = int64[1] {1}>()
    all = ReduceSum<keepdims = 0>(b, axis)
    whole = ReduceSum<keepdims = 0>(other, axis)
    s = Sub(all, whole)
  }>
}"""


def test_growth_that_a_branch_decides_and_a_past_with_two_continuations() -> None:
    model, exe = compiled(BRANCHES)
    assert appends(exe) == 1  # of the branch
    machine = machine_of(exe)
    for rounds, columns in ((1, 1), (2, 3), (21, 2)):
        check(model, machine, {"n": np.array(rounds), "x": floats(2, columns)})


NESTED = """g (int64 n, int64 m, float[2, p, 3] x) => (float[2, q, 3] y) <float[2, 1, 3] one = {1, 2, 3, 4, 5, 6}> {
  c = Constant<value = bool {1}>()
  y = Loop(n, c, x) <body = l (int64 i, bool ci, float[2, q, 3] a) => (bool co, float[2, r, 3] b) {
    co = Identity(ci)
    first = Concat<axis = 1>(a, one)
    b = Loop(m, ci, first) <body = k (int64 j, bool cj, float[2, s, 3] u) => (bool cp, float[2, t, 3] w) {
      cp = Identity(cj)
      axis = Constant<value = int64[1] {1}>()
      total = ReduceMean<axes = [1], keepdims = 1>(u)
      older = ReduceMax<axes = [1], keepdims = 1>(a)
      row = Add(total, older)
      w = Concat<axis = 1>(u, row)
    }>
  }>
}"""


def test_a_loop_in_a_loop_carries_the_same() -> None:
    model, exe = compiled(NESTED)
    assert appends(exe) == 2
    machine = machine_of(exe)
    for outer, inner in ((0, 3), (3, 0), (4, 5), (1, 1)):
        check(model, machine, {"n": np.array(outer), "m": np.array(inner), "x": floats(2, 2, 3)})


SCAN = """g (float[s, 2] rows, float[2] start) => (float[2] last, float[s, 2] all) {
  last, all = Scan<num_scan_inputs = 1, body = l (float[2] a, float[2] b) => (float[2] c, float[2] d) {
    c = Add(a, b)
    d = Tanh(c)
  }>(start, rows)
}"""


def test_what_a_scan_collects() -> None:
    _, exe = compiled(SCAN)
    assert appends(exe) == 1
    machine = machine_of(exe)
    for count in (1, 2, 37):
        feeds = {"start": floats(2), "rows": floats(count, 2)}
        last, rows = machine.run(feeds["rows"], feeds["start"])
        sums = feeds["start"] + np.cumsum(feeds["rows"], 0)
        np.testing.assert_allclose(last.numpy(), sums[-1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows.numpy(), np.tanh(sums), rtol=1e-4, atol=1e-5)


def loop_of_relay(step: str, result: str = "%w") -> Executable:
    """@grow(%i, %past), which goes on with ``step`` until %i is 0."""
    mod = relay.fromtext(f"""#[version = "0.0.5"]
def @grow(%i: int32, %past: Tensor[(3, ?), float32], %new: Tensor[(3, 1), float32]) -> Tensor[(3, ?), float32] {{
  if (equal(%i, 0)) {{ %past }} else {{ {step} }}
}}
def @main(%i: int32, %past: Tensor[(3, ?), float32], %new: Tensor[(3, 1), float32]) {{
  let %w = @grow(%i, %past, %new);
  {result}
}}""")
    return relay.vm.compile(mod, "llvm")


STEP = "@grow(subtract(%i, 1), concatenate((%past, %new), axis=1), %new)"


def test_a_global_function_that_calls_itself_continues_an_input() -> None:
    """What the caller carries from run to run lies in one piece of memory all along."""
    machine = machine_of(loop_of_relay(STEP))
    new = floats(3, 1)
    whole = with_capacity(floats(3, 2), 1, 40)
    for rounds in (3, 0, 30):
        before, place = whole.numpy(), int(whole._tensor.data)
        after = machine.run(rounds, whole, new)
        np.testing.assert_array_equal(after.numpy(), np.concatenate([before, np.tile(new, (1, rounds))], 1))
        np.testing.assert_array_equal(whole.numpy(), before)
        assert int(after._tensor.data) == place
        whole = after


HELD = "let %f = fn (%t: Tensor[(3, ?), float32]) { %t }; let %g = (%f,);"


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (f"let %both = stack((%past, %past), axis=0); {STEP}", "stack((%w, %w), axis=0)"),
        ("@grow(subtract(%i, 1), concatenate((%past, %past), axis=1), %new)", "%w"),
        (f"let %r = ref(%past); {STEP}", "%w"),
        (f"{HELD} let %h = %g.0; let %u = %h(%past); {STEP}", "%w"),
    ],
)
def test_where_strides_cannot_go_values_are_copied(step: str, result: str) -> None:
    exe = loop_of_relay(step, result)
    assert appends(exe) == 0
    new, past = floats(3, 1), floats(3, 2)
    found = machine_of(exe).run(2, past, new).numpy()
    wanted = np.tile(past, (1, 4)) if "(%past, %past), axis=1" in step else np.concatenate([past, new, new], 1)
    np.testing.assert_array_equal(found, np.stack([wanted, wanted]) if "stack" in result else wanted)
