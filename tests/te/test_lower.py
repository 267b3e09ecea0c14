"""``tvm.lower``: TVM 0.8's text, arguments, binds, options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.te.lower import schedule_to_primfunc
from tilewright.te.schedule import Schedule
from tilewright.testing.tir_interpreter import run

GOLDEN = Path(__file__).parents[1] / "golden" / "tir"


def vector_add() -> tuple[Schedule, list[te.Tensor]]:
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    return s, [a, b, c]


def tiled_matmul() -> tuple[Schedule, list[te.Tensor]]:
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "local")
    xo, yo, _, yi = s[c].tile(*c.op.axis, 8, 16)
    s[cache].compute_at(s[c], yo)
    ko, ki = s[cache].split(k, factor=4)
    s[cache].reorder(ko, *cache.op.axis, ki)
    s[c].vectorize(yi)
    s[c].parallel(xo)
    return s, [a, b, c]


@pytest.mark.parametrize(("name", "program"), [("vector_add", vector_add), ("matmul_tiled", tiled_matmul)])
def test_text_is_tvms(name: str, program: object) -> None:
    s, args = program()  # type: ignore[operator]
    assert str(tvm.lower(s, args, simple_mode=True)) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_symbolic_extent(n: int) -> None:
    s, args = vector_add()
    a, b = np.random.default_rng(0).random((2, n), "float32")
    c = np.empty(n, "float32")
    run(tvm.lower(s, args)["main"], a, b, c)
    np.testing.assert_array_equal(c, a + b)


def test_name_becomes_the_symbol() -> None:
    s, args = vector_add()
    mod = tvm.lower(s, args, name="add")
    assert mod["add"].attrs["global_symbol"] == "add"


def test_scalar_argument() -> None:
    a = te.placeholder((4,), name="A")
    x = te.var("x", "float32")
    b = te.compute((4,), lambda i: a[i] * x, name="B")
    out = np.empty(4, "float32")
    run(tvm.lower(te.create_schedule(b.op), [a, x, b])["main"], np.arange(4, dtype="float32"), 3.0, out)
    np.testing.assert_array_equal(out, [0, 3, 6, 9])


def test_intermediate_tensor_as_argument_is_stored_there() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
    first, second = np.empty(4, "float32"), np.empty(4, "float32")
    mod = tvm.lower(te.create_schedule(c.op), [a, b, c])
    run(mod["main"], np.arange(4, dtype="float32"), first, second)
    np.testing.assert_array_equal(first, [1, 2, 3, 4])
    np.testing.assert_array_equal(second, [2, 4, 6, 8])
    assert "allocate" not in str(mod)


def test_bound_buffer_with_strides() -> None:
    a = te.placeholder((4, 3), name="A")
    b = te.compute((4, 3), lambda i, j: a[i, j] + 1.0, name="B")
    padded = tir.decl_buffer((4, 3), "float32", "padded", strides=[8, 1])
    func = schedule_to_primfunc(te.create_schedule(b.op), [padded, b], binds={a: padded})
    mod = tvm.lower(func, name="main")
    assert "[((i*8) + j)]" in str(mod)


def test_vectorization_can_be_switched_off() -> None:
    s, args = tiled_matmul()
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        assert "ramp" not in str(tvm.lower(s, args))


def test_extra_pass() -> None:
    seen: list[str] = []

    @tir.transform.prim_func_pass(opt_level=0)
    def look(func: tir.PrimFunc, mod: object, ctx: object) -> tir.PrimFunc:
        seen.append(type(func.body).__name__)
        return func

    s, args = tiled_matmul()
    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(0, look), (3, look)]}):
        tvm.lower(s, args)
    assert len(seen) == 2


def test_input_that_is_no_argument_is_named() -> None:
    s, args = vector_add()
    with pytest.raises(TilewrightError, match="A is an input of the schedule, but not among the arguments"):
        tvm.lower(s, args[1:])


def test_wrong_argument_is_named() -> None:
    s, args = vector_add()
    with pytest.raises(TilewrightError, match="argument 1 of main is a int"):
        tvm.lower(s, [args[0], 3])


def test_missing_arguments_are_explained() -> None:
    with pytest.raises(TilewrightError, match="needs args"):
        tvm.lower(vector_add()[0])


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("inside", [False, True])
def test_empty_and_single_reductions(rows: int, inside: bool) -> None:
    a = te.placeholder((rows, 3), name="A")
    b = te.compute((rows, 3), lambda i, j: a[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, rows), name="k")
    c = te.compute((3,), lambda j: te.sum(b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=2)
    if inside:
        s[b].compute_at(s[c], outer)
    data = np.arange(rows * 3, dtype="float32").reshape(rows, 3)
    out = np.empty(3, "float32")
    run(tvm.lower(s, [a, c])["main"], data, out)
    np.testing.assert_array_equal(out, (data * 2).sum(0))


def test_long_chain_of_stages() -> None:
    tensors = [te.placeholder((2,), name="A")]
    for n in range(300):
        last = tensors[-1]
        tensors.append(te.compute((2,), lambda i, t=last: t[i] + 1.0, name=f"T{n}"))
    s = te.create_schedule(tensors[-1].op)
    out = np.empty(2, "float32")
    run(tvm.lower(s, [tensors[0], tensors[-1]])["main"], np.zeros(2, "float32"), out)
    np.testing.assert_array_equal(out, [300, 300])


def test_condition_of_a_reduction_is_tested_in_the_last_loop_that_it_needs() -> None:
    a = te.placeholder((4, 6), name="A")
    k, j = te.reduce_axis((0, 3), name="k"), te.reduce_axis((0, 5), name="j")
    inside = tir.all(tir.likely(k.var >= 1), tir.likely(j.var + k.var < 6))
    b = te.compute((4,), lambda i: te.sum(a[i, j + k], axis=[k, j], where=tir.all(inside, a[i, j] > 0)), name="B")
    s = te.create_schedule(b.op)
    lines = [line.strip() for line in str(tvm.lower(s, [a, b], simple_mode=True)).splitlines()]
    starts = [line.split("(")[0].strip() for line in lines if line.startswith(("for", "if"))]
    assert starts == ["for", "for", "if @tir.likely", "for", "if"]
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    found = np.empty(4, "float32")
    run(tvm.lower(s, [a, b])["main"], x, found)
    wanted = [sum(x[i, q + p] for p in range(1, 3) for q in range(5) if q + p < 6 and x[i, q] > 0) for i in range(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 4, 3), (2, 4, 3), (1, 1, 1)])
def test_a_buffer_that_broadcasts_takes_extents_of_one(shape: tuple[int, ...]) -> None:
    a = te.placeholder([te.size_var(f"m{i}") for i in range(3)], name="a")
    b = te.placeholder([te.size_var(f"n{i}") for i in range(3)], name="b")
    c = te.compute([te.size_var(f"o{i}") for i in range(3)], lambda i, j, k: a[i, j, k] + b[i, j, k], name="c")
    binds = {t: tir.decl_buffer(t.shape, t.dtype, t.name, buffer_type="auto_broadcast") for t in (a, b)}
    func = tvm.build(te.create_schedule(c.op), [a, b, c], "llvm", binds=binds)
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 4, 3), "float32"), rng.random(shape, "float32")
    out = tvm.nd.array(np.zeros((2, 4, 3), "float32"))
    func(tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x + y, rtol=1e-6)
