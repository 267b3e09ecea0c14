"""Schedules of topi.gpu: which threads a kernel has, and what is refused."""

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import UnsupportedError
from tilewright.target import Target
from tilewright.tir.stmt import AttrStmt
from tilewright.tir.transform import VerifyMemory
from tilewright.tir.visitor import StmtVisitor


class Kernels(StmtVisitor):
    """The extents of each kernel's axes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, int]] = []
        self.inside = 0

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key != "thread_extent":
            super().visit_attr(s)
            return
        if not self.inside:
            self.found.append({})
        self.found[-1].setdefault(s.node.thread_tag, int(s.value))
        self.inside += 1
        super().visit_attr(s)
        self.inside -= 1


def kernels_of(arguments: list[te.Tensor], out: te.Tensor, target: str = "opencl") -> list[dict[str, int]]:
    with Target(target):
        s = topi.gpu.schedule_kernels(out)
        mod = tvm.lower(s, [*arguments, out], simple_mode=True)
    mod["main"] = mod["main"].with_attr("target", Target(target))
    VerifyMemory()(mod)
    found = Kernels()
    found.visit_stmt(mod["main"].body)
    return found.found


def placeholder(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, name="A", dtype=dtype)


@pytest.mark.parametrize(
    ("shape", "blocks", "threads"),
    [
        ((8, 32, 14, 14), 49, 256),  # vectors of four
        ((1031,), 5, 256),  # a prime number of elements: one each
        ((7,), 1, 7),
        ((1 << 13, 1 << 14), 1 << 16, 256),  # more than a grid: threads go over it twice
    ],
)
def test_elements_are_shared_out_among_threads(shape: tuple[int, ...], blocks: int, threads: int) -> None:
    data = placeholder(*shape)
    assert kernels_of([data], topi.nn.relu(data)) == [{"blockIdx.x": blocks, "threadIdx.x": threads}]


def test_a_tensor_of_one_element_has_one_thread() -> None:
    data = te.placeholder((), name="A")
    assert kernels_of([data], topi.exp(data)) == [{"blockIdx.x": 1, "threadIdx.x": 1}]


def test_the_targets_limit_bounds_a_block() -> None:
    data = placeholder(1031)
    assert kernels_of([data], topi.nn.relu(data), "opencl -max_num_threads=64")[0]["threadIdx.x"] == 64


def test_a_pool_with_what_follows_is_one_kernel() -> None:
    data = placeholder(1, 8, 14, 14)
    with Target("opencl"):
        pooled = topi.nn.relu(topi.nn.pool2d(data, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max"))
    assert len(kernels_of([data], pooled)) == 1


def test_rows_apart_in_memory_have_a_thread_each() -> None:
    data = placeholder(2, 5, 7, 9)
    assert kernels_of([data], topi.nn.softmax(data, axis=1)) == [{"blockIdx.x": 1, "threadIdx.x": 256}]


def test_short_rows_are_sorted_several_by_a_block() -> None:
    data = placeholder(100, 30)
    with Target("opencl"):
        out = topi.sort(data)
    assert kernels_of([data], out) == [{"blockIdx.x": 13, "threadIdx.x": 128}]  # 8 rows of 16 pairs


def test_long_rows_are_sorted_in_chunks_and_merged() -> None:
    data = placeholder(5000)
    with Target("opencl"):
        out = topi.argsort(data)
    assert len(kernels_of([data], out)) == 1 + 4 + 1  # chunks of 512, four merges, the result


def test_a_result_that_nobody_asks_for_has_memory() -> None:
    boxes, count, places = placeholder(1, 5, 6), placeholder(1, dtype="int32"), placeholder(1, 5, dtype="int32")
    with Target("opencl"):
        chosen, _ = topi.vision.non_max_suppression(boxes, count, places)
        s = topi.generic.schedule_nms(chosen)
        mod = tvm.lower(s, [boxes, count, places, chosen])
    assert "allocate(nms" in str(mod)


def test_loops_for_one_processor_are_refused_with_what_to_do() -> None:
    data = placeholder(10)
    out = te.extern((10,), [data], lambda i, o: _copy(i[0], o[0]), name="serial_copy", dtype="float32")
    with pytest.raises(UnsupportedError, match=r'serial_copy has no schedule for opencl.*"cpu"'):
        kernels_of([data], out)


def _copy(source: tvm.tir.Buffer, target: tvm.tir.Buffer) -> tvm.tir.Stmt:
    ib = tvm.tir.ir_builder.create()
    with ib.for_range(0, 10) as i:
        ib.buffer_ptr(target)[i] = ib.buffer_ptr(source)[i]
    return ib.get()
