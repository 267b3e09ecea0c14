"""Allocations move out of loops and share memory."""

from tests.tir.transform.texts import check

from tilewright import tir
from tilewright.tir import ir_builder
from tilewright.tir.transform.storage_rewrite import storage_rewrite


def test_allocations_leave_serial_loops_and_share_memory() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 4, "i") as i:
        b = ib.allocate("float32", 8, name="B")
        b[0] = a[i]
        a[i] = b[0]
        c = ib.allocate("float32", 4, name="C")
        c[1] = 2.0
        a[i] = c[1]
    check(
        ib.get(),
        storage_rewrite,
        """
        for (i: int32, 0, 4) {
          allocate(B: Pointer(float32), float32, [8]), storage_scope = global {
            B[0] = (float32*)A[i]
            A[i] = (float32*)B[0]
            allocate(C: Pointer(float32), float32, [4]), storage_scope = global {
              C[1] = 2f32
              A[i] = (float32*)C[1]
            }
          }
        }
        """,
        """
        allocate(B: Pointer(float32), float32, [8]), storage_scope = global;
        for (i: int32, 0, 4) {
          B[0] = (float32*)A[i]
          A[i] = (float32*)B[0]
          B[1] = 2f32
          A[i] = (float32*)B[1]
        }
        """,
    )


def allocations(text: str) -> int:
    return text.count("allocate(")


def test_buffers_alive_together_stay_apart() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    b = ib.allocate("float32", 8, name="B")
    c = ib.allocate("float32", 8, name="C")
    b[0] = 1.0
    c[1] = 2.0
    a[0] = b[0] + c[1]
    assert allocations(str(storage_rewrite(ib.get()))) == 2


def test_a_value_kept_over_a_loop_is_alive_all_through_it() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    b = ib.allocate("float32", 8, name="B")
    c = ib.allocate("float32", 8, name="C")
    b[0] = 1.0
    with ib.for_range(0, 4, "i") as i:
        a[i] = b[0]
        c[0] = a[i]
        a[i] = c[0]
    assert allocations(str(storage_rewrite(ib.get()))) == 2


def test_memory_stays_inside_a_parallel_loop() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 4, "i", kind="parallel") as i, ib.for_range(0, 4, "j") as j:
        b = ib.allocate("float32", 8, name="B")
        b[0] = 1.0
        a[i * 4 + j] = b[0]
    text = str(storage_rewrite(ib.get())).splitlines()
    assert text[0].startswith("for (i")
    assert text[1].strip().startswith("allocate(B")


def test_a_copy_element_by_element_is_done_in_place() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    b = ib.allocate("float32", 1, name="B")
    c = ib.allocate("float32", 1, name="C")
    b[0] = a[0]
    c[0] = b[0] + 1.0
    a[0] = c[0]
    assert allocations(str(storage_rewrite(ib.get()))) == 1


def test_different_dtypes_do_not_share() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    b = ib.allocate("float32", 8, name="B")
    b[0] = 1.0
    a[0] = b[0]
    c = ib.allocate("int32", 8, name="C")
    c[0] = 1
    a[0] = tir.Cast("float32", c[0])
    assert allocations(str(storage_rewrite(ib.get()))) == 2


def test_a_buffer_whose_address_is_taken_does_not_share() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    b = ib.allocate("float32", 8, name="B")
    b[0] = 1.0
    ib.emit(tir.call_extern("int32", "f", b.asobject()))
    c = ib.allocate("float32", 8, name="C")
    c[0] = 2.0
    a[0] = c[0]
    assert allocations(str(storage_rewrite(ib.get()))) == 2


def test_a_variable_allocated_twice_stays_where_it_is() -> None:
    a, b, c = (tir.Var(n, "handle") for n in "ABC")

    def use(var: tir.Var) -> tir.Stmt:
        body = tir.SeqStmt([tir.Store(var, 1.0, 0), tir.Store(a, tir.Load("float32", var, 0), 0)])
        return tir.Allocate(var, "float32", [8], tir.const(True), body)

    stmt = tir.SeqStmt([use(b), use(c), use(b)])
    assert allocations(str(storage_rewrite(stmt))) == 3
