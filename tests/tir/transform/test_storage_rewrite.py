"""Allocations move out of loops and share memory."""

import numpy as np
from tests.tir.transform.texts import check

import tilewright as tvm
from tilewright import te, tir
from tilewright.testing.tir_interpreter import run
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


def test_memory_that_blocks_read_is_not_what_other_blocks_store() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    b = ib.allocate("float32", 8, name="B")
    c = ib.allocate("float32", 8, name="C")
    with ib.new_scope():
        first = te.thread_axis("blockIdx.x")
        ib.scope_attr(first, "thread_extent", 8)
        b[first.var] = a[first.var]
    with ib.new_scope():
        block = te.thread_axis("blockIdx.x")
        ib.scope_attr(block, "thread_extent", 8)
        d = ib.allocate("float32", 1, name="D", scope="local")
        d[0] = b[7 - block.var]
        c[block.var] = d[0]
    with ib.new_scope():
        last = te.thread_axis("blockIdx.x")
        ib.scope_attr(last, "thread_extent", 8)
        a[last.var] = c[last.var]
    assert allocations(str(storage_rewrite(ib.get()))) == 3


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


def allocated(stmt: tir.Stmt) -> list[tir.Allocate]:
    found: list[tir.Allocate] = []
    tir.post_order_visit(stmt, lambda n: found.append(n) if isinstance(n, tir.Allocate) else None)
    return found


def test_memory_of_variable_size_is_shared_where_the_sizes_are_equal() -> None:
    n = te.size_var("n")
    tensors = [te.placeholder((n,), name="A")]
    for step in range(4):
        tensors.append(te.compute((n,), lambda i, t=tensors[-1], k=step: t[i] * 2.0 + k, name=f"B{step}"))
    s = te.create_schedule(tensors[-1].op)
    func = tvm.lower(s, [tensors[0], tensors[-1]])["main"]
    assert len(allocated(func.body)) == 1
    for count in (1, 13):
        data, out = np.arange(count, dtype="float32"), np.zeros(count, "float32")
        run(func, data, out)
        np.testing.assert_array_equal(out, data * 16 + 11)


def test_memory_whose_size_a_loop_sets_stays_in_the_loop() -> None:
    ib = ir_builder.create()
    with ib.for_range(1, 5, "i") as i:
        a = ib.allocate("float32", i, name="A")
        a[0] = 1.0
    assert isinstance(storage_rewrite(ib.get()), tir.For)


def test_tagged_memory_becomes_one_allocation() -> None:
    ib = ir_builder.create()
    out = ib.pointer("float32", "out")
    first = ib.allocate("int8", 5, name="first", scope="local.L0A")
    second = ib.allocate("float32", 7, name="second", scope="local.L0A")
    with ib.for_range(0, 5) as i:
        first[i] = tir.Cast("int8", i)
    with ib.for_range(0, 7) as i:
        second[i] = tir.Cast("float32", i) * 2.0
    with ib.for_range(0, 5) as i:
        out[i] = second[i] + tir.Cast("float32", first[i])
    func = tir.PrimFunc([out.asobject()], storage_rewrite(ib.get()))
    (memory,) = allocated(func.body)
    assert memory.buffer_var.type_annotation.storage_scope == "local.L0A"
    assert (memory.dtype, int(memory.extents[0])) == ("int8", 8 + 7 * 4)  # float32 begins at a multiple of its size
    offsets = {str(n.index) for n in stores(func.body) if n.buffer_var is memory.buffer_var}
    assert len(offsets) == 2 and any("+ 2" in text for text in offsets)


def stores(stmt: tir.Stmt) -> list[tir.Store]:
    found: list[tir.Store] = []
    tir.post_order_visit(stmt, lambda n: found.append(n) if isinstance(n, tir.Store) else None)
    return found
