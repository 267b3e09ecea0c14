"""Loads, stores, allocations, loops and conditionals in generated code, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.processors.x86 import runs_here
from tests.target.codegen_helpers import TARGETS, build, function

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Broadcast,
    BufferLoad,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Load,
    Ramp,
    SeqStmt,
    Stmt,
    Store,
    StringImm,
    Var,
    While,
    decl_buffer,
)  # fmt: skip
from tilewright.tir import op as T

ON_ALL = pytest.mark.parametrize("target", TARGETS)


def run(target: str, body: Stmt, buffers: list, arrays: list[np.ndarray], **attrs: object) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Call the function with copies of the arrays and give them back."""
    func = build(target, function("f", buffers, body, **attrs))
    copies = [tvm.nd.array(x) for x in arrays]
    func(*copies)
    return [c.numpy() for c in copies]


_LLVM_CASES = [(t, n, d) for t in TARGETS[:2] for n in (2, 3, 8, 24) for d in ("float32", "int8", "bool")]


@pytest.mark.covering(1)
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 0, -1, -2])
@pytest.mark.parametrize(("target", "lanes", "dtype"), [*_LLVM_CASES, ("c", 8, "float32")])
def test_vector_loads_of_any_stride(target: str, lanes: int, dtype: str, stride: int) -> None:
    size = abs(stride) * (lanes - 1) + 1  # the buffer ends with the last lane
    a, b = decl_buffer((size,), dtype, "A"), decl_buffer((lanes,), dtype, "B")
    start = size - 1 if stride < 0 else 0
    value = Load(f"{dtype}x{lanes}", a.data, Ramp(start, stride, lanes))
    x = np.arange(size) % 7
    x = (x > 3) if dtype == "bool" else x.astype(dtype)
    _, out = run(target, Store(b.data, value, Ramp(0, 1, lanes)), [a, b], [x, np.zeros(lanes, x.dtype)])
    np.testing.assert_array_equal(out, x[start + stride * np.arange(lanes)])


@ON_ALL
@pytest.mark.parametrize("stride", [2, 3, -1])
def test_strided_vector_stores(target: str, stride: int) -> None:
    a, b = decl_buffer((4,), "float32", "A"), decl_buffer((12,), "float32", "B")
    start = 11 if stride < 0 else 1
    body = Store(b.data, Load("float32x4", a.data, Ramp(0, 1, 4)), Ramp(start, stride, 4))
    x = np.arange(1, 5, dtype="float32")
    _, out = run(target, body, [a, b], [x, np.zeros(12, "float32")])
    expected = np.zeros(12, "float32")
    expected[start + stride * np.arange(4)] = x
    np.testing.assert_array_equal(out, expected)


@ON_ALL
def test_gathers_and_scatters(target: str) -> None:
    a, i, b = decl_buffer((16,), "float32", "A"), decl_buffer((8,), "int32", "I"), decl_buffer((16,), "float32", "B")
    index = Load("int32x8", i.data, Ramp(0, 1, 8))
    body = Store(b.data, Load("float32x8", a.data, index), index)
    x, at = np.arange(16, dtype="float32"), np.array([3, 1, 15, 0, 8, 7, 2, 11], "int32")
    _, _, out = run(target, body, [a, i, b], [x, at, np.zeros(16, "float32")])
    expected = np.zeros(16, "float32")
    expected[at] = x[at]
    np.testing.assert_array_equal(out, expected)


@ON_ALL
def test_predicated_lanes_touch_no_memory(target: str) -> None:
    a, m, b = decl_buffer((4,), "float32", "A"), decl_buffer((4,), "bool", "M"), decl_buffer((4,), "float32", "B")
    lanes = Ramp(0, 1, 4)
    mask = Load("boolx4", m.data, lanes)
    body = Store(b.data, Load("float32x4", a.data, lanes, mask) + Broadcast(ops.const(1.0), 4), lanes, mask)
    x, flags = np.arange(4, dtype="float32"), np.array([True, False, False, True])
    _, _, out = run(target, body, [a, m, b], [x, flags, np.full(4, -5, "float32")])
    np.testing.assert_array_equal(out, np.where(flags, x + 1, -5))


@ON_ALL
@pytest.mark.parametrize("size", [64, 100_000])
def test_allocations_on_the_stack_and_in_workspaces(target: str, size: int) -> None:
    a, b = decl_buffer((size,), "float32", "A"), decl_buffer((size,), "float32", "B")
    i, j = Var("i", "int32"), Var("j", "int32")
    t = Var("T", PointerType(PrimType("float32")))
    fill = For(i, 0, size, 0, Store(t, Load("float32", a.data, i) * 2.0, i))
    read = For(j, 0, size, 0, Store(b.data, Load("float32", t, size - 1 - j), j))
    body = Allocate(t, "float32", [size], ops.const(True), SeqStmt([fill, read]))
    x = np.arange(size, dtype="float32")
    _, out = run(target, body, [a, b], [x, np.zeros_like(x)])
    np.testing.assert_array_equal(out, 2 * x[::-1])


@ON_ALL
def test_workspaces_of_one_size_are_distinct(target: str) -> None:
    size = 100_000
    a, b = decl_buffer((size,), "float32", "A"), decl_buffer((size,), "float32", "B")
    s, t = Var("S", PointerType(PrimType("float32"))), Var("T", PointerType(PrimType("float32")))
    i, j, k = Var("i", "int32"), Var("j", "int32"), Var("k", "int32")
    first = For(i, 0, size, 0, Store(s, Load("float32", a.data, i), i))
    second = For(j, 0, size, 0, Store(t, Load("float32", a.data, j) * 2.0, j))
    read = For(k, 0, size, 0, Store(b.data, Load("float32", s, k) + Load("float32", t, k), k))
    inner = Allocate(t, "float32", [size], ops.const(True), SeqStmt([first, second, read]))
    x = np.arange(size, dtype="float32")
    _, out = run(target, Allocate(s, "float32", [size], ops.const(True), inner), [a, b], [x, np.zeros_like(x)])
    np.testing.assert_array_equal(out, 3 * x)


@ON_ALL
def test_a_failed_assertion_reports_and_frees_its_workspace(target: str) -> None:
    a = decl_buffer((4,), "int32", "A")
    t = Var("T", PointerType(PrimType("float32")))
    check = AssertStmt(Load("int32", a.data, 0) > 0, StringImm("A[0] must be positive"), Evaluate(0))
    used = SeqStmt([Store(t, ops.const(1.0), 0), check])
    func = build(target, function("f", [a], Allocate(t, "float32", [1 << 20], ops.const(True), used)))
    func(tvm.nd.array(np.ones(4, "int32")))
    for _ in range(2000):  # 8 GB if they were not freed
        with pytest.raises(tvm.TVMError, match="A\\[0\\] must be positive"):
            func(tvm.nd.array(np.zeros(4, "int32")))


@ON_ALL
def test_loops_of_every_extent(target: str) -> None:
    n, out = decl_buffer((1,), "int32", "N"), decl_buffer((8,), "int32", "OUT")
    i, j, k = (Var(v, "int32") for v in "ijk")
    extent = Load("int32", n.data, 0)
    loops = SeqStmt([
        For(i, 2, extent, 0, Store(out.data, i, i)),
        For(j, 6, 1, 0, Store(out.data, ops.const(60), j)),
        For(k, 0, 0, 0, Store(out.data, ops.const(-1), k)),
    ])  # fmt: skip
    for count in (0, 1, 3):
        _, found = run(target, loops, [n, out], [np.array([count], "int32"), np.zeros(8, "int32")])
        expected = np.zeros(8, "int32")
        expected[2 : 2 + count] = range(2, 2 + count)
        expected[6] = 60
        np.testing.assert_array_equal(found, expected)


@ON_ALL
@pytest.mark.parametrize("kind", [ForKind.UNROLLED, ForKind.VECTORIZED])
def test_unrolled_and_vectorized_loops_may_reach_code_generation(target: str, kind: ForKind) -> None:
    out, i = decl_buffer((5,), "int32", "OUT"), Var("i", "int32")
    (found,) = run(target, For(i, 0, 5, kind, Store(out.data, i * i, i)), [out], [np.zeros(5, "int32")])
    np.testing.assert_array_equal(found, np.arange(5) ** 2)


@ON_ALL
def test_while_loops_see_what_they_store(target: str) -> None:
    out = decl_buffer((2,), "int32", "OUT")
    first = Load("int32", out.data, 0)
    double = Store(out.data, first * 2, 0)
    count = Store(out.data, Load("int32", out.data, 1) + 1, 1)
    body = While(first < 100, SeqStmt([double, count]))
    (found,) = run(target, body, [out], [np.array([3, 0], "int32")])
    np.testing.assert_array_equal(found, [192, 6])


@ON_ALL
def test_a_store_is_seen_by_the_next_statement(target: str) -> None:
    out = decl_buffer((2,), "int32", "OUT")
    grow = Store(out.data, Load("int32", out.data, 0) + 1, 0)
    (found,) = run(target, SeqStmt([grow, grow, grow]), [out], [np.array([5, 0], "int32")])
    assert found[0] == 8


@ON_ALL
def test_conditional_values_guard_their_loads(target: str) -> None:
    a, b, i = decl_buffer((4,), "float32", "A"), decl_buffer((1 << 16,), "float32", "B"), Var("i", "int32")
    far = i * 100_000_000  # an address that is not there
    inside = T.if_then_else(i < 1, Load("float32", a.data, far) + Load("float32", a.data, far) * 2.0, ops.const(9.0))
    chain = T.if_then_else(i.equal(2), ops.const(2.0), T.if_then_else(i.equal(3), ops.const(3.0), inside))
    _, out = run(
        target,
        For(i, 0, 4, 0, Store(b.data, chain, i)),
        [a, b],
        [np.full(4, 5, "float32"), np.zeros(1 << 16, "float32")],
    )
    np.testing.assert_array_equal(out[:4], [15, 9, 2, 3])


@ON_ALL
def test_logic_guards_loads_like_c(target: str) -> None:
    a, b, i = decl_buffer((4,), "int32", "A"), decl_buffer((8,), "int32", "B"), Var("i", "int32")
    far = Load("int32", a.data, i * 100_000_000)
    both, either = ops.logical_and(i < 1, far.equal(7)), ops.logical_or(i > 0, far.equal(7))
    body = For(
        i,
        0,
        4,
        0,
        SeqStmt([Store(b.data, ops.cast("int32", both), i), Store(b.data, ops.cast("int32", either), i + 4)]),
    )
    _, out = run(target, body, [a, b], [np.full(4, 7, "int32"), np.zeros(8, "int32")])
    np.testing.assert_array_equal(out, [1, 0, 0, 0, 1, 1, 1, 1])


@ON_ALL
def test_branches_and_lets(target: str) -> None:
    out, i, x = decl_buffer((6,), "int32", "OUT"), Var("i", "int32"), Var("x", "int32")
    branch = IfThenElse(T.likely(x > 2), Store(out.data, x, i), Store(out.data, -x, i))
    (found,) = run(target, For(i, 0, 6, 0, LetStmt(x, i + 1, branch)), [out], [np.zeros(6, "int32")])
    np.testing.assert_array_equal(found, [-1, -2, 3, 4, 5, 6])


@ON_ALL
def test_long_nests_of_lets_and_attributes_compile(target: str) -> None:
    out = decl_buffer((1,), "int32", "OUT")
    variables = [Var(f"x{k}", "int32") for k in range(2000)]
    body: Stmt = Store(out.data, variables[-1], 0)
    for k in reversed(range(1, 2000)):
        body = LetStmt(
            variables[k], variables[k - 1] + 1, AttrStmt(StringImm("a"), "pragma_anything", ops.const(1), body)
        )
    (found,) = run(target, LetStmt(variables[0], ops.const(0), body), [out], [np.zeros(1, "int32")])
    assert found[0] == 1999


@ON_ALL
def test_booleans_take_a_byte(target: str) -> None:
    a, b, i = decl_buffer((4,), "int32", "A"), decl_buffer((4,), "bool", "B"), Var("i", "int32")
    x = np.array([3, -1, 0, 8], "int32")
    _, out = run(
        target, For(i, 0, 4, 0, Store(b.data, Load("int32", a.data, i) > 0, i)), [a, b], [x, np.zeros(4, bool)]
    )
    np.testing.assert_array_equal(out.astype(bool), x > 0)


@pytest.mark.unverified
@ON_ALL
def test_what_was_not_lowered_is_refused_by_name(target: str) -> None:
    a = decl_buffer((4,), "float32", "A")
    with pytest.raises(TilewrightError, match="does not handle BufferLoad"):
        build(target, function("f", [a], Store(a.data, BufferLoad(a, [0]), 1)))


def test_reductions_are_reordered_only_where_the_schedule_says_so() -> None:
    def source(reassociate: bool) -> str:
        a = te.placeholder((4096,), name="A")
        k = te.reduce_axis((0, 4096), "k")
        b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
        s = te.create_schedule(b.op)
        if reassociate:
            s[b].pragma(k, "reassociate")
        func = tvm.build(s, [a, b], "llvm", name="total")
        x = np.random.default_rng(0).standard_normal(4096).astype("float32")
        out = tvm.nd.array(np.zeros(1, "float32"))
        func(tvm.nd.array(x), out)
        np.testing.assert_allclose(out.numpy(), [x.astype("float64").sum()], rtol=1e-4, atol=1e-4)
        if not reassociate:
            assert out.numpy()[0] == np.add.accumulate(x, dtype="float32")[-1]
        return func.get_source("ll")

    assert "reassoc" in source(True)
    assert "reassoc" not in source(False)


@pytest.mark.parametrize("columns", [16, 32, 37])
def test_a_row_that_is_stored_becomes_vectors_along_it(columns: int) -> None:
    """Also where the schedule has no ``vectorize``, and a loop around it would take vectors from far apart."""
    rows, depth = 16, 64
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = te.create_schedule(c.op)
    schedule[c].reorder(k, *c.op.axis)
    text = tvm.build(schedule, [a, b, c], "llvm -mcpu=skylake-avx512").get_source("asm")
    assert "vfmadd" in text and "gather" not in text and "scatter" not in text
    x, y = (np.random.default_rng(0).random(s).astype("float32") for s in ((rows, depth), (depth, columns)))
    out = tvm.nd.empty((rows, columns))
    tvm.build(schedule, [a, b, c], "llvm")(tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-5)


def test_vector_halves_and_their_combination() -> None:
    a, b = decl_buffer((8,), "float32", "A"), decl_buffer((8,), "float32", "B")
    whole = Load("float32x8", a.data, Ramp(0, 1, 8))
    low = T.call_intrin("float32x4", "tir.vectorlow", whole)
    high = T.call_intrin("float32x4", "tir.vectorhigh", whole)
    value = T.call_intrin("float32x8", "tir.vectorcombine", high, low)
    x = np.arange(8, dtype="float32")
    _, out = run("llvm", Store(b.data, value, Ramp(0, 1, 8)), [a, b], [x, np.zeros(8, "float32")])
    np.testing.assert_array_equal(out, np.roll(x, 4))


@ON_ALL
def test_copies_of_a_loop_body_may_define_the_same_variables(target: str) -> None:
    a, b = decl_buffer((8,), "float32", "A"), decl_buffer((64,), "float32", "B")
    base, x = Var("base", "int32"), Var("x", "float32")
    t, one = Var("T", PointerType(PrimType("float32"))), Var("one", "int32")

    def copy(k: int) -> Stmt:
        spread = Store(b.data, Broadcast(Load("float32", t, 0), 8), Ramp(base, 1, 8))
        kept = Allocate(t, "float32", [1], ops.const(True), SeqStmt([Store(t, x, 0), spread]))
        loop = For(one, k, 1, 0, LetStmt(x, Load("float32", a.data, one) * 2.0, kept))
        return LetStmt(base, ops.const(8 * k + (k % 2) * 4), loop)  # aligned in one copy, not in the next

    x_values = np.arange(1, 9, dtype="float32")
    _, out = run(target, SeqStmt([copy(k) for k in range(7)]), [a, b], [x_values, np.zeros(64, "float32")])
    expected = np.zeros(64, "float32")
    for k in range(7):
        start = 8 * k + (k % 2) * 4
        expected[start : start + 8] = 2 * x_values[k]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "target",
    [*filter(runs_here, ("llvm", "llvm -mcpu=skylake-avx512", "llvm -mcpu=core-avx2", "llvm -mcpu=x86-64")), "c"],
)
def test_indices_that_wrap_are_not_taken_for_linear_ones(target: str) -> None:
    # LLVM 22 vectorizes the loop over 16 rows, once that over 10 columns is unrolled, as if row % 4 did not wrap
    x = np.random.default_rng(0).random((2, 3, 4, 5), "float32")
    repeats = (7, 6, 4, 2)
    with tvm.target.Target(target):
        a = te.placeholder(x.shape, name="a")
        b = topi.tile(a, repeats)
        kernel = tvm.build(te.create_schedule(b.op), [a, b])
    out = tvm.nd.array(np.full((14, 18, 16, 10), np.nan, "float32"))
    kernel(tvm.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), np.tile(x, repeats))


@pytest.mark.parametrize("modulus", [2, 4, 8])
@pytest.mark.parametrize("rows", [7, 16, 32])
def test_sums_of_indices_that_wrap(rows: int, modulus: int) -> None:
    x = np.random.default_rng(0).random((6, 16), "float32")
    with tvm.target.Target("llvm"):
        a = te.placeholder(x.shape, name="a")
        b = te.compute((6, rows), lambda o, i: a[o % 2, (i + o) % modulus + 1] * 2.0 + a[o, i % modulus], name="b")
        kernel = tvm.build(te.create_schedule(b.op), [a, b])
    out = tvm.nd.array(np.full((6, rows), np.nan, "float32"))
    kernel(tvm.nd.array(x), out)
    o, i = np.indices((6, rows))
    np.testing.assert_allclose(out.numpy(), x[o % 2, (i + o) % modulus + 1] * 2 + x[o, i % modulus], rtol=1e-6)


@ON_ALL
@pytest.mark.parametrize("first", [0, 16, 3])
def test_lanes_of_one_vector(target: str, first: int) -> None:
    """Lanes ``i // 4 * 4 + 1`` of vectors, aligned or not."""
    a, b, i = decl_buffer((67,), "float32", "A"), decl_buffer((48,), "float32", "B"), Var("i", "int32")
    four = Broadcast(ops.const(4), 16)
    picked = (Ramp(0, 1, 16) // four) * four + Broadcast(ops.const(1), 16)
    value = Load("float32x16", a.data, Broadcast(i * 16 + first, 16) + picked)
    body = For(i, 0, 3, ForKind.SERIAL, Store(b.data, value, Ramp(i * 16, 1, 16)))
    data = np.arange(67, dtype="float32")
    lanes = (np.arange(48) // 4 * 4 + 1 + first).astype("int64")
    found = run(target, body, [a, b], [data, np.zeros(48, "float32")])[1]
    np.testing.assert_array_equal(found, data[lanes])


@ON_ALL
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float64"])
@pytest.mark.parametrize("times", [2, 4, 8])
def test_repeated_lanes(target: str, dtype: str, times: int) -> None:
    """Lanes ``i // times``, of a buffer that ends with the last of them."""
    size = 48 // times
    a, b, i = decl_buffer((size + 3,), dtype, "A"), decl_buffer((48,), dtype, "B"), Var("i", "int32")
    index = Broadcast(i * (16 // times) + 3, 16) + Ramp(0, 1, 16) // Broadcast(ops.const(times), 16)
    body = For(i, 0, 3, ForKind.SERIAL, Store(b.data, Load(f"{dtype}x16", a.data, index), Ramp(i * 16, 1, 16)))
    data = (np.arange(size + 3) % 5 > 1) if dtype == "bool" else np.arange(size + 3).astype(dtype)
    found = run(target, body, [a, b], [data, np.zeros(48, data.dtype)])[1]
    np.testing.assert_array_equal(found, data[3:].repeat(times))


def test_repeated_lanes_are_one_load() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((128,), lambda i: a(te.indexdiv(i, 2)), name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(s[b].op.axis[0], 16)[1])
    assert "load <8 x float>" in tvm.build(s, [a, b], "llvm -mcpu=skylake-avx512").get_source()


@pytest.mark.parametrize("lanes", [2, 4, 8])
@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_strided_doubles_at_any_address(first: int, stride: int, lanes: int) -> None:
    """Vectors that do not start on a multiple of their size are not read as if they did."""
    n = 4 * lanes
    a = te.placeholder((n * stride + first,), "float64", "a")
    b = te.compute((n,), lambda i: a[i * stride + first] + 1.0, "b")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[0], factor=lanes)[1])
    kernel = tvm.build(s, [a, b], "llvm -mcpu=x86-64")
    data = np.random.default_rng(0).random(n * stride + first)
    found = tvm.nd.empty((n,), "float64")
    kernel(tvm.nd.array(data), found)
    np.testing.assert_array_equal(found.numpy(), data[first::stride][:n] + 1.0)


@pytest.mark.parametrize("lanes", [1, 16, 64])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32"])
@pytest.mark.parametrize("target", [*TARGETS, "llvm -mcpu=icelake-server"])
def test_tables_of_bytes(target: str, dtype: str, lanes: int) -> None:
    if not target.startswith("c") and not runs_here(target):
        pytest.skip(f"this machine lacks instructions of {target}")
    table, x, y = decl_buffer((256,), dtype, "T"), decl_buffer((256,), "uint8", "X"), decl_buffer((256,), dtype, "Y")
    i = Var("i", "int32")
    at = Ramp(i * lanes, 1, lanes) if lanes > 1 else i
    suffix = f"x{lanes}" if lanes > 1 else ""
    value = Load(dtype + suffix, table.data, T.byte_index(Load("uint8" + suffix, x.data, at)))
    body = For(i, 0, 256 // lanes, ForKind.SERIAL, Store(y.data, value, at))
    rng = np.random.default_rng(lanes)
    entries, numbers = rng.integers(0, 128, 256).astype(dtype), rng.permutation(256).astype("uint8")
    found = run(target, body, [table, x, y], [entries, numbers, np.zeros(256, dtype)])[2]
    np.testing.assert_array_equal(found, entries[numbers])


def assembly_of_look_ups(x: te.Tensor, table: te.Tensor) -> dict[str, str]:
    """Return the assembly of one vector of look-ups by byte, for two processors."""
    y = te.compute(x.shape, lambda i: table(T.byte_index(x[i])), "y")
    s = te.create_schedule(y.op)
    s[y].vectorize(y.op.axis[0])
    return {
        cpu: tvm.build(s, [x, table, y], f"llvm -mcpu={cpu}").get_source("asm") for cpu in ("icelake-server", "haswell")
    }


def test_whole_vectors_are_looked_up_where_a_processor_can() -> None:
    x, table = te.placeholder((64,), "uint8", "x"), te.placeholder((256,), "uint8", "t")
    code = assembly_of_look_ups(x, table)
    assert code["icelake-server"].count("vperm") == 2
    assert "vperm" not in code["haswell"]


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_words_of_a_table_are_gathered_where_a_processor_does_it_fast(dtype: str) -> None:
    x, table = te.placeholder((16,), "uint8", "x"), te.placeholder((256,), dtype, "t")
    code = assembly_of_look_ups(x, table)
    assert code["icelake-server"].count("gatherd") == 1
    assert "gather" not in code["haswell"]
