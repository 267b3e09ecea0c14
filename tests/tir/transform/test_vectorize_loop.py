"""Marked loops become operations on vectors."""

import pytest
from tests.tir.transform.texts import check

from tilewright import tir
from tilewright.ir.errors import TilewrightError
from tilewright.tir import ir_builder
from tilewright.tir.transform.vectorize_loop import skip_vectorize, vectorize_loop


def test_loads_arithmetic_and_stores_become_vectors() -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 8, "i", kind="vectorize") as i:
        b[i] = a[i] + 1.0
    check(
        ib.get(),
        vectorize_loop,
        """
        for (i: int32, 0, 8) "vectorized" {
          B[i] = ((float32*)A[i] + 1f32)
        }
        """,
        """
        B[ramp(0, 1, 8)] = ((float32x8*)A[ramp(0, 1, 8)] + broadcast(1f32, 8))
        """,
    )


def test_a_bound_is_tested_once_for_the_vector() -> None:
    ib = ir_builder.create()
    b = ib.pointer("float32", "B")
    with (
        ib.for_range(0, 13, "x") as x,
        ib.for_range(0, 8, "i", kind="vectorize") as i,
        ib.if_scope(ib.likely(x * 8 + i < 100)),
    ):
        b[x * 8 + i] = 0.0
    check(
        ib.get(),
        vectorize_loop,
        """
        for (x: int32, 0, 13) {
          for (i: int32, 0, 8) "vectorized" {
            if @tir.likely((((x*8) + i) < 100), dtype=bool) {
              B[((x*8) + i)] = 0f32
            }
          }
        }
        """,
        """
        for (x: int32, 0, 13) {
          if (x < 12) {
            B[ramp((x*8), 1, 8)] = broadcast(0f32, 8)
          } else {
            B[ramp(96, 1, 4)] = broadcast(0f32, 4)
          }
        }
        """,
    )


def test_lanes_known_to_pass_become_vectors_of_powers_of_two() -> None:
    ib = ir_builder.create()
    b = ib.pointer("float32", "B")
    with ib.for_range(0, 8, "i", kind="vectorize") as i, ib.if_scope(ib.likely(i + 8 < 15)):
        b[i] = 0.0
    after = """\
B[ramp(0, 1, 4)] = broadcast(0f32, 4)
B[ramp(4, 1, 2)] = broadcast(0f32, 2)
B[6] = 0f32
"""
    assert str(vectorize_loop(ib.get())) == after


def test_a_bound_that_differs_between_outer_iterations_leaves_a_serial_rest() -> None:
    ib = ir_builder.create()
    b = ib.pointer("float32", "B")
    with (
        ib.for_range(0, 13, "x") as x,
        ib.for_range(0, 5, "y") as y,
        ib.for_range(0, 8, "i", kind="vectorize") as i,
        ib.if_scope(ib.likely(x * 8 + y * 3 + i < 100)),
    ):
        b[x * 8 + y * 3 + i] = 0.0
    text = str(vectorize_loop(ib.get()))
    assert "ramp(" in text
    assert "for (i.s" in text


def test_memory_inside_gets_a_lane_and_an_accumulation_becomes_serial() -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 4, "i", kind="vectorize") as i:
        c = ib.allocate("float32", 3, name="C")
        with ib.for_range(0, 3, "r") as r:
            c[r] = a[i * 3 + r]
        b[0] = b[0] + c[2]
        b[i + 1] = tir.exp(c[0])
    check(
        ib.get(),
        vectorize_loop,
        """
        for (i: int32, 0, 4) "vectorized" {
          allocate(C: Pointer(float32), float32, [3]), storage_scope = global {
            for (r: int32, 0, 3) {
              C[r] = (float32*)A[((i*3) + r)]
            }
            B[0] = ((float32*)B[0] + (float32*)C[2])
            B[(i + 1)] = @tir.exp((float32*)C[0], dtype=float32)
          }
        }
        """,
        """
        allocate(C: Pointer(float32), float32, [3, 4]), storage_scope = global {
          for (r: int32, 0, 3) {
            C[ramp((r*4), 1, 4)] = (float32x4*)A[ramp(r, 3, 4)]
          }
          for (i.s: int32, 0, 4) {
            B[0] = ((float32*)B[0] + (float32*)C[(8 + i.s)])
          }
          B[ramp(1, 1, 4)] = @tir.exp((float32x4*)C[ramp(0, 1, 4)], dtype=float32x4)
        }
        """,
    )


def test_a_reduction_into_a_vector_accumulator() -> None:
    ib = ir_builder.create()
    a, b, c = (ib.pointer("float32", n) for n in "ABC")
    with ib.for_range(0, 8, "j", kind="vectorize") as j:
        c[j] = 0.0
        with ib.for_range(0, 16, "k") as k:
            c[j] = c[j] + a[k] * b[k * 8 + j]
    after = """\
C[ramp(0, 1, 8)] = broadcast(0f32, 8)
for (k: int32, 0, 16) {
  C[ramp(0, 1, 8)] = ((float32x8*)C[ramp(0, 1, 8)] + (broadcast((float32*)A[k], 8)*(float32x8*)B[ramp((k*8), 1, 8)]))
}
"""
    assert str(vectorize_loop(ib.get())) == after


def test_an_extern_call_stays_scalar_around_it_vectors() -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 4, "i", kind="vectorize") as i:
        a[i] = tir.call_pure_extern("float32", "cosf", b[i])
        b[i] = 2.0
    after = """\
for (i.s: int32, 0, 4) {
  A[i.s] = @tir.call_pure_extern("cosf", (float32*)B[i.s], dtype=float32)
}
B[ramp(0, 1, 4)] = broadcast(2f32, 4)
"""
    assert str(vectorize_loop(ib.get())) == after


def test_a_choice_between_safe_values_becomes_a_select() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 4, "i", kind="vectorize") as i:
        a[i] = tir.if_then_else(i % 3 < 1, 1.0, 2.0)
    assert "select(" in str(vectorize_loop(ib.get()))


def test_a_guarded_load_is_not_made_unconditional() -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 4, "i", kind="vectorize") as i:
        a[i] = tir.if_then_else(i >= 1, b[i - 1], 0.0)
    after = str(vectorize_loop(ib.get()))
    assert "for (i.s" in after
    assert "if_then_else" in after


def test_padding_is_tested_once_for_the_vector() -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 4, "x") as x, ib.for_range(0, 4, "i", kind="vectorize") as i:
        a[x * 4 + i] = tir.if_then_else(x * 4 + i >= 1, b[x * 4 + i - 1], 0.0)
    after = """\
for (x: int32, 0, 4) {
  if (1 <= x) {
    A[ramp((x*4), 1, 4)] = (float32x4*)B[ramp(((x*4) - 1), 1, 4)]
  } else {
    for (i.s: int32, 0, 4) {
      A[((x*4) + i.s)] = @tir.if_then_else((((x*4) + i.s) >= 1), (float32*)B[(((x*4) + i.s) - 1)], 0f32, dtype=float32)
    }
  }
}
"""
    assert str(vectorize_loop(ib.get())) == after


def test_a_length_that_is_no_power_of_two_becomes_vectors_that_are() -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 13, "i", kind="vectorize") as i:
        b[i] = a[i] + 1.0
    after = """B[ramp(0, 1, 8)] = ((float32x8*)A[ramp(0, 1, 8)] + broadcast(1f32, 8))
B[ramp(8, 1, 4)] = ((float32x4*)A[ramp(8, 1, 4)] + broadcast(1f32, 4))
B[12] = ((float32*)A[12] + 1f32)
"""
    assert str(vectorize_loop(ib.get())) == after


def test_fused_indices_stay_contiguous() -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 14, "x") as x, ib.for_range(0, 8, "i", kind="vectorize") as i:
        fused = x * 8 + i
        a[fused] = b[fused // 56 * 100 + fused % 56]
    assert "(float32x8*)B[ramp(" in str(vectorize_loop(ib.get()))


def test_an_unknown_extent_is_an_error_that_says_what_to_do() -> None:
    loop = tir.For(tir.Var("i"), 0, tir.Var("n"), tir.ForKind.VECTORIZED, tir.Evaluate(0))
    with pytest.raises(TilewrightError, match="split the axis by a constant factor"):
        vectorize_loop(loop)


def test_an_extent_that_depends_on_an_outer_loop_runs_serially() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 8, "i") as i, ib.for_range(0, i + 1, "j", kind="vectorize") as j:
        a[j] = 0.0
    assert "vectorized" not in str(vectorize_loop(ib.get()))


def test_when_disabled_the_loop_is_serial() -> None:
    loop = tir.For(tir.Var("i"), 0, 8, tir.ForKind.VECTORIZED, tir.Evaluate(0))
    assert str(skip_vectorize(loop)) == "for (i: int32, 0, 8) {\n  0\n}\n"
