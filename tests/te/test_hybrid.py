"""Hybrid scripts: what is compiled gives what the same function gives on numpy's arrays."""
# ruff: noqa: F821  (names that only scripts know)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.gpu_sources import need_opencl

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def compare(
    function: Callable[..., Any],
    *arrays: Any,
    schedule: Callable[[te.Schedule, list[te.Tensor]], None] = lambda s, outs: None,
    tolerance: float = 1e-6,
) -> te.hybrid.HybridModule:
    """Build ``function`` for arrays of these shapes; compare with the function itself; do so for its text again."""
    tensors = [te.placeholder(a.shape, str(a.dtype), f"in{k}") for k, a in enumerate(arrays)]
    outs = as_list(function(*tensors))
    s = te.create_schedule(outs[0].op)
    schedule(s, outs)
    expected = as_list(function(*arrays))
    text = te.hybrid.build(s, tensors, outs)
    again = as_list(text(*tensors))
    for sch, results in ((s, outs), (te.create_schedule(again[0].op), again)):
        built = tvm.build(sch, [*tensors, *results], "llvm")
        found = [tvm.nd.empty(e.shape, str(e.dtype)) for e in expected]
        built(*map(tvm.nd.array, arrays), *found)
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f.numpy(), e, rtol=tolerance, atol=tolerance)
    for f, e in zip(as_list(text(*arrays)), expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)
    return text


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(0).random(shape) * 10 - 3).astype(dtype)


@te.hybrid.script
def outer(a: Any, b: Any) -> Any:
    """Every element of one by every element of the other."""
    c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 13), (16, 8), (0, 3)])
def test_loops_over_tensors(n: int, m: int) -> None:
    compare(outer, numbers(n), numbers(m))


def test_sizes_may_be_variables() -> None:
    n, m = te.size_var("n"), te.size_var("m")

    @te.hybrid.script
    def scaled(n: Any, m: Any, a: Any) -> Any:
        b = output_tensor((n, m), "float32")
        for i in range(n):
            for j in range(m):
                b[i, j] = a[i, j] * 2.0
        return b

    a = te.placeholder((n, m), name="a")
    b = scaled(n, m, a)
    built = tvm.build(te.create_schedule(b.op), [n, m, a, b], "llvm")
    for shape in ((3, 5), (1, 7)):
        result = tvm.nd.empty(shape)
        given = numbers(*shape)
        built(*shape, tvm.nd.array(given), result)
        np.testing.assert_array_equal(result.numpy(), given * 2)


def test_numbers_that_change_are_elements_of_memory() -> None:
    @te.hybrid.script
    def windows(a: Any) -> Any:
        three = 3.0
        b = output_tensor((a.shape[0] - 3,), a.dtype)
        for i in range(a.shape[0] - 3):
            total = 0.0
            for j in range(3):
                total += a[i + j]
            total = total / three
            first = a[i]
            b[i] = total - first
        return b

    compare(windows, numbers(11))


def test_a_number_read_from_memory_keeps_its_value() -> None:
    @te.hybrid.script
    def swap(a: Any) -> Any:
        b = output_tensor(a.shape, a.dtype)
        for i in range(a.shape[0]):
            b[i] = a[i]
        for i in range(a.shape[0] // 2):
            kept = b[2 * i]
            b[2 * i] = b[2 * i + 1]
            b[2 * i + 1] = kept
        return b

    compare(swap, numbers(8))


def test_kinds_of_loops() -> None:
    @te.hybrid.script
    def kinds(a: Any) -> Any:
        b = output_tensor(a.shape, "int32")
        c = output_tensor(a.shape, "int32")
        d = output_tensor(a.shape, "int32")
        for i in parallel(16):
            b[i] = a[i] + 1
        for j in vectorize(16):
            c[j] = a[j] * 2
        for k in unroll(16):
            d[k] = a[k] // 2
        return b, c, d

    compare(kinds, np.arange(-8, 8, dtype="int32"))
    body = kinds(te.placeholder((16,), "int32"))[0].op.body
    kinds_found = [loop.kind for loop in body.seq]
    assert kinds_found == [tvm.tir.ForKind.PARALLEL, tvm.tir.ForKind.VECTORIZED, tvm.tir.ForKind.UNROLLED]


def compare_on_threads(function: Callable[..., Any], array: np.ndarray) -> None:
    """Run ``function`` and its text on an OpenCL device; compare with the function itself."""
    need_opencl()
    device, a = tvm.opencl(0), te.placeholder(array.shape, str(array.dtype), "a")
    with tvm.target.Target("opencl -max_num_threads=16"):
        expected, c = function(array), function(a)
        text = te.hybrid.build(te.create_schedule(c.op), [a], [c])
        for out in (c, text(a)):
            built = tvm.build(te.create_schedule(out.op), [a, out])
            found = tvm.nd.empty(expected.shape, str(expected.dtype), device)
            built(tvm.nd.array(array, device), found)
            np.testing.assert_allclose(found.numpy(), expected, 1e-6)


def test_loops_along_threads() -> None:
    @te.hybrid.script
    def sums(a: Any) -> Any:
        c = output_tensor((a.shape[0],), a.dtype)
        total = allocate((1,), a.dtype, "local")  # every thread has its own
        for i in bind("threadIdx.x", a.shape[0]):
            total[0] = 0.0
            for k in range(a.shape[1]):
                total[0] += a[i, k]
            c[i] = total[0]
        for i in bind("threadIdx.x", a.shape[0]):
            c[i] = c[i] * 2.0
        return c

    @te.hybrid.script
    def doubled(a: Any) -> Any:
        b = output_tensor(a.shape, a.dtype)
        n = a.shape[0]
        m = max_num_threads()
        for j in bind("blockIdx.x", ceil_div(n, m)):
            for i in bind("threadIdx.x", m):
                if j * m + i < n:
                    b[j * m + i] = a[j * m + i] * 2.0
        return b

    compare_on_threads(sums, np.random.default_rng(0).random((7, 3)).astype("float32"))
    compare_on_threads(doubled, np.random.default_rng(1).random(37).astype("float32"))


def test_conditions() -> None:
    @te.hybrid.script
    def conditions(a: Any) -> Any:
        b = output_tensor(a.shape, a.dtype)
        for i in range(a.shape[0]):
            if 2 <= i < 7 and not (i == 4 or a[i] < 0.0):
                b[i] = a[i]
            else:
                b[i] = -1.0 if i % 2 == 0 else max(a[i], 1.0)
        return b

    compare(conditions, numbers(10))


def test_what_is_known_is_worked_out() -> None:
    table, factor = ((1, 2), (3, 4)), 5

    @te.hybrid.script
    def known(a: Any) -> Any:
        b = output_tensor(a.shape, a.dtype)
        n = len(table)
        for i in const_range(n):
            for j in const_range(len(table[i])):
                if i == j:
                    b[i, j] = a[i, j] * factor
                else:
                    b[i, j] = a[i, j] + table[i][j]
        return b

    a = te.placeholder((2, 2), name="a")
    b = known(a)
    assert "for" not in str(b.op.body)
    built = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
    given, result = numbers(2, 2), tvm.nd.empty((2, 2))
    built(tvm.nd.array(given), result)
    np.testing.assert_allclose(result.numpy(), known(given), rtol=1e-6)


def test_functions() -> None:
    @te.hybrid.script
    def functions(a: Any) -> Any:
        b = output_tensor((9,), "float32")
        b[0] = sqrt(a[0])
        b[1] = log(a[1])
        b[2] = exp(a[2])
        b[3] = sigmoid(a[3])
        b[4] = power(a[4], a[5])
        b[5] = tanh(a[5])
        b[6] = min(a[4], a[5])
        b[7] = rsqrt(a[7])
        b[8] = float32(int32(a[6]))
        return b

    compare(functions, np.linspace(1, 3, 8).astype("float32"), tolerance=1e-5)


def test_lists_of_tensors() -> None:
    @te.hybrid.script
    def added(inputs: Any, weights: Any) -> Any:
        out = output_tensor((10,), inputs[0].dtype)
        for i in range(10):
            out[i] = 0.0
            for j in const_range(len(inputs)):
                out[i] += inputs[j][i] * weights[j]
        return out

    arrays = [numbers(10) + k for k in range(3)]
    tensors = [te.placeholder((10,), name=f"t{k}") for k in range(3)]
    out = added(tvm.runtime.convert(tensors), tvm.runtime.convert([1, 2, 3]))
    assert len(out.op.inputs) == 3
    built = tvm.build(te.create_schedule(out.op), [*tensors, out], "llvm")
    result = tvm.nd.empty((10,))
    built(*map(tvm.nd.array, arrays), result)
    np.testing.assert_allclose(result.numpy(), added(arrays, [1, 2, 3]), rtol=1e-5)


def test_allocated_memory() -> None:
    @te.hybrid.script
    def blur(a: Any) -> Any:
        b = output_tensor((5, 5), "float32")
        for i in range(5):
            rows = allocate((3, 5), "float32")
            for j in range(3):
                for k in range(5):
                    rows[j, k] = a[i + j, k] + a[i + j, k + 1] + a[i + j, k + 2]
            for j in range(5):
                b[i, j] = (rows[0, j] + rows[1, j] + rows[2, j]) / 9.0
        return b

    compare(blur, numbers(7, 7), tolerance=1e-5)


def test_scripts_call_scripts() -> None:
    @te.hybrid.script
    def twice(a: Any) -> Any:
        c = outer(a, a)
        d = output_tensor(c.shape, c.dtype)
        for i in range(a.shape[0]):
            for j in range(a.shape[0]):
                d[i, j] = c[i, j] + i * j
        return d

    a = te.placeholder((5,), name="a")
    d = twice(a)
    built = tvm.build(te.create_schedule(d.op), [a, d], "llvm")
    given, result = numbers(5), tvm.nd.empty((5, 5))
    built(tvm.nd.array(given), result)
    np.testing.assert_allclose(result.numpy(), twice(given), rtol=1e-6)


def test_between_other_operations() -> None:
    a = te.placeholder((6,), name="a")
    before = te.compute((6,), lambda i: a[i] + 1.0, name="before")
    middle = outer(before, before)
    after = te.compute((6, 6), lambda i, j: middle[j, i] - 1.0, name="after")
    built = tvm.build(te.create_schedule(after.op), [a, after], "llvm")
    given, result = numbers(6), tvm.nd.empty((6, 6))
    built(tvm.nd.array(given), result)
    np.testing.assert_allclose(result.numpy(), np.outer(given + 1, given + 1) - 1, rtol=1e-5)


def split_and_reorder(s: te.Schedule, outs: list[te.Tensor]) -> None:
    i, j = outs[0].op.axis
    io, ii = s[outs[0]].split(i, 4)
    jo, ji = s[outs[0]].split(j, nparts=3)
    s[outs[0]].reorder(jo, ii, io, ji)
    s[outs[0]].parallel(jo)
    s[outs[0]].unroll(ii)


def fuse(s: te.Schedule, outs: list[te.Tensor]) -> None:
    fused = s[outs[0]].fuse(*outs[0].op.axis)
    _, inner = s[outs[0]].split(fused, 8)
    s[outs[0]].vectorize(inner)


@pytest.mark.parametrize("schedule", [split_and_reorder, fuse])
@pytest.mark.parametrize("shape", [(8, 6), (7, 11), (1, 1)])
def test_schedules_change_the_loops(schedule: Any, shape: tuple[int, int]) -> None:
    text = compare(outer, numbers(shape[0]), numbers(shape[1]), schedule=schedule).get_source()
    assert ("parallel(" in text) == (schedule is split_and_reorder)


def test_loops_that_do_not_begin_at_0() -> None:
    @te.hybrid.script
    def triangle(a: Any, b: Any) -> Any:
        c = output_tensor((10, 10), dtype="float32")
        for k in range(10):
            for m in range(10):
                c[k, m] = 0.0
        for i in range(2, 9):
            for j in range(i, 10):
                c[i, j] = a[i] * b[j]
        return c

    compare(triangle, numbers(10), numbers(10))
    compare(triangle, numbers(10), numbers(10), schedule=lambda s, outs: s[outs[0]].split(outs[0].op.axis[2], 3))


def test_a_loop_cannot_go_out_of_one_that_its_end_depends_on() -> None:
    @te.hybrid.script
    def triangle(a: Any) -> Any:
        c = output_tensor((10, 10), dtype="float32")
        for i in range(10):
            for j in range(i, 10):
                c[i, j] = a[i]
        return c

    c = triangle(te.placeholder((10,), name="a"))
    s = te.create_schedule(c.op)
    s[c].reorder(*reversed(c.op.axis))
    with pytest.raises(TilewrightError, match="stage triangle: reorder: how far j goes"):
        tvm.lower(s, [c])


def test_saved_and_loaded(tmp_path: Path) -> None:
    a, b = te.placeholder((4,), name="a"), te.placeholder((3,), name="b")
    c = outer(a, b)
    te.hybrid.build(te.create_schedule(c.op), [a, b], [c], name="product").save(tmp_path / "product.py")
    loaded = te.hybrid.HybridModule()
    loaded.load(tmp_path / "product.py")
    assert loaded.name == "product"
    np.testing.assert_allclose(loaded(numbers(4), numbers(3)), np.outer(numbers(4), numbers(3)), rtol=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        "b = open('x')",
        "b = (1).__class__",
        "import os",
        "b = [x for x in a]",
        "b = __import__('os')",
        "b = a.tofile('x')",
        "b = (lambda: 1)()",
        "exec('1')",
    ],
)
def test_a_file_that_is_more_than_a_script_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(f"def f(a):\n    {line}\n    return a\n")
    with pytest.raises(TilewrightError, match="line 2 of f"):
        te.hybrid.HybridModule().load(path)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("while True:\n        pass", "no while"),
        ("for i in range(4):\n        x = 1.0\n        x = x + a[i]\n    b[0] = x", "x.*not defined"),
        ("b[0, 1] = 1.0", "1 dimensions and is indexed with 2"),
        ("c = output_tensor((2,), 'float32')", "c is an output_tensor, but not returned"),
        ("b[0] = nothing(1)", "nothing"),
        (
            "for i in bind('threadIdx.x', 4):\n        b[i] = a[i]\n"
            "    for i in bind('threadIdx.x', 3):\n        b[i] = 0.0",
            "3 threads of threadIdx.x, and an earlier one along 4",
        ),
        (
            "for i in range(4):\n        for j in bind('threadIdx.x', i + 1):\n            b[j] = a[j]",
            "depends on a loop",
        ),
        ("m = max_num_threads()", "target"),
    ],
)
def test_what_is_no_script_is_an_error_with_its_line(body: str, why: str) -> None:
    source = f"def f(a):\n    b = output_tensor((4,), 'float32')\n    {body}\n    return b\n"
    with pytest.raises(TilewrightError, match=why):
        te.hybrid.source_to_op(source, [te.placeholder((4,), name="a")], {}, {})


@pytest.mark.parametrize("divide", [te.truncdiv, te.truncmod])
def test_a_division_towards_0_has_no_form_in_python(divide: Any) -> None:
    a = te.placeholder((9,), "int32", name="a")
    c = te.compute((9,), lambda i: divide(a[i], tvm.tir.const(2, "int32")), name="c")
    with pytest.raises(TilewrightError, match=r"hybrid_func: .* has no form in a hybrid script"):
        te.hybrid.build(te.create_schedule(c.op), [a], [c])
