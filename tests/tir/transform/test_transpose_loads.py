"""TransposeLoads: its text before and after, and transpositions of many shapes on processors of every vector width."""

import numpy as np
import pytest
from tests.processors.x86 import runs_here
from tests.tir.transform.texts import check

import tilewright as tvm
from tilewright import te, tir
from tilewright.tir import ir_builder
from tilewright.tir.expr import Ramp
from tilewright.tir.transform.transpose_loads import transpose_loads
from tilewright.topi.cpu.injective import schedule_injective


def _gathering(extent: int, stride: int, coefficient: int = 1, guard: bool = False) -> tir.Stmt:
    """A loop that gathers columns of two doubles."""
    ib = ir_builder.create()
    a, b = ib.pointer("float64", "A"), ib.pointer("float64", "B")
    with ib.for_range(0, extent, "i") as i:
        value = tir.Load("float64x2", a.asobject(), Ramp(i * coefficient, stride, 2))
        store = tir.Store(b.asobject(), value, Ramp(i * 2, 1, 2))
        if guard:
            with ib.if_scope(tir.likely(i < 5)):
                ib.emit(store)
        else:
            ib.emit(store)
    return ib.get()


def test_text() -> None:
    check(
        _gathering(3, 9),
        transpose_loads,
        """
        for (i: int32, 0, 3) {
          B[ramp((i*2), 1, 2)] = (float64x2*)A[ramp(i, 9, 2)]
        }
        """,
        """
        for (i.outer: int32, 0, 1) {
          let turned: float64x2 = (float64x2*)A[ramp((i.outer*2), 1, 2)];
          let turned_1: float64x2 = (float64x2*)A[ramp(((i.outer*2) + 9), 1, 2)];
          let turned_2: float64x2 = shuffle([turned, turned_1], [0, 2]);
          let turned_3: float64x2 = shuffle([turned, turned_1], [1, 3]) {
            B[ramp(((i.outer*2)*2), 1, 2)] = turned_2
            B[ramp((((i.outer*2) + 1)*2), 1, 2)] = turned_3
          }
        }
        for (i: int32, 2, 3) {
          B[ramp((i*2), 1, 2)] = (float64x2*)A[ramp(i, 9, 2)]
        }
        """,
    )


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(_gathering(1, 9), id="a single column"),
        pytest.param(_gathering(8, 9, coefficient=2), id="every other column"),
        pytest.param(_gathering(8, 3), id="rows that overlap in a register"),
    ],
)
def test_what_is_left_alone(loop: tir.Stmt) -> None:
    assert transpose_loads(loop) is loop


def test_a_matrix_turned_in_place_is_left_alone() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float64", "A")
    with ib.for_range(0, 4, "i") as i:
        value = tir.Load("float64x2", a.asobject(), Ramp(i, 9, 2))
        ib.emit(tir.Store(a.asobject(), value, Ramp(i * 2 + 100, 1, 2)))
    loop = ib.get()
    assert transpose_loads(loop) is loop


def test_a_condition_is_tested_at_both_ends_of_a_tile() -> None:
    text = str(transpose_loads(_gathering(8, 9, guard=True)))
    assert "if (@tir.likely(((i.outer*2) < 5), dtype=bool) && @tir.likely((((i.outer*2) + 1) < 5), dtype=bool))" in text
    assert "} else {" in text


def _choosing(below: bool) -> tir.Stmt:
    """Vectors that are read but for the first; ``below``: the choice is an operand of what is stored."""
    ib = ir_builder.create()
    a, b = ib.pointer("float64", "A"), ib.pointer("float64", "B")
    with ib.for_range(0, 8, "i") as i:
        read = tir.Load("float64x2", a.asobject(), Ramp(i - 1, 9, 2))
        choice = tir.if_then_else(i >= 1, read, tir.Broadcast(tir.const(0.0, "float64"), 2))
        ib.emit(tir.Store(b.asobject(), choice + choice if below else choice, Ramp(i * 2, 1, 2)))
    return ib.get()


def test_what_is_chosen_is_read_only_where_it_is() -> None:
    text = str(transpose_loads(_choosing(below=False)))
    assert text.index("if (") < text.index("let turned")
    assert "= turned_2" in text


def test_loads_below_a_choice_are_left_alone() -> None:
    loop = _choosing(below=True)
    assert transpose_loads(loop) is loop


@pytest.mark.parametrize("cpu", ["nehalem", "haswell", "skylake-avx512"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
@pytest.mark.parametrize("shape", [(1, 4096), (16, 256), (67, 61), (196, 40), (40, 196), (512, 33)])
def test_transpositions(cpu: str, dtype: str, shape: tuple[int, int]) -> None:
    target = f"llvm -mcpu={cpu}"
    if not runs_here(target):
        pytest.skip("this processor cannot run the code")
    rows, columns = shape
    a = te.placeholder(shape, dtype, name="A")
    b = te.compute((columns, rows), lambda i, j: a[j, i] + a[j, i], name="B", tag="injective")
    with tvm.target.Target(target):
        func = tvm.build(schedule_injective([b]), [a, b])
    data = np.random.default_rng(0).integers(-50, 50, shape).astype(dtype)
    out = tvm.nd.array(np.zeros((columns, rows), dtype))
    func(tvm.nd.array(data), out)
    np.testing.assert_array_equal(out.numpy(), 2 * data.T)
