"""New rows of a buffer of fixed length are written in its memory where nobody else holds it; numpy tells what it is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import TVMError, relay
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import DimVar
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.runtime.vm import Executable, VirtualMachine

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
WRITE = "tilewright.vm.write_rows"


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def program(
    past: tuple[int, ...], rows: tuple[Any, ...], axis: int, starts: Any = 1, reads_past: bool = False
) -> relay.Function:
    """(past, rows, starts) -> (past with the rows, the sums over its last dimension)."""
    types = (past, "float32"), (rows, "float32"), ((starts,), "int32")
    params = [relay.var(n, relay.TensorType(*t)) for n, t in zip(("past", "rows", "starts"), types, strict=True)]
    whole = relay.write_rows(*params, axis=axis)
    results = [whole, relay.sum(whole, axis=-1)]
    if reads_past:
        results.append(relay.multiply(params[0], relay.const(2.0)))
    return relay.Function(params, relay.Tuple(results))


def machine(func: relay.Function, **options: Any) -> VirtualMachine:
    exe = relay.vm.compile(IRModule.from_expr(func), "llvm", **options)
    assert WRITE in exe.primitive_ops
    return VirtualMachine(Executable.load_exec(*exe.save()), tvm.cpu())


def written(past: Array, rows: Array, starts: Array, axis: int) -> Array:
    result = past.copy()
    for item in range(len(past)):
        start = starts[item if len(starts) > 1 else 0]
        index = [item, *[slice(None)] * (past.ndim - 1)]
        index[axis] = slice(start, start + rows.shape[axis])
        result[tuple(index)] = rows[item]
    return result


def address(tensor: Any) -> int:
    return int(tensor._tensor.data)


class Steps:
    """Runs of a machine whose first output becomes its first input."""

    def __init__(self, made: VirtualMachine, past: Any, rows: Array, starts: Array) -> None:
        self.calls = [made.module[name] for name in ("carry", "invoke_stateful", "get_output")]
        self.pairs = tvm.nd.array(np.array([[0, 0]], "int64"))
        made.module["set_input"]("main", past, tvm.nd.array(rows), tvm.nd.array(starts))
        self.calls[1]("main")

    def step(self, rows: Array, starts: Array) -> None:
        self.calls[0]("main", self.pairs, 1, tvm.nd.array(rows), 2, tvm.nd.array(starts))
        self.calls[1]("main")

    def output(self, index: int = 0) -> Any:
        return self.calls[2](index)


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("shared", [True, False])
def test_a_carried_buffer_stays_where_it_is(axis: int, shared: bool) -> None:
    shape = [3, 5, 7, 4]
    count = 1 if shared else 3
    more = [*shape[:axis], 2, *shape[axis + 1 :]]
    past, new, starts = floats(*shape), floats(*more), RNG.integers(0, shape[axis] - 1, count).astype("int32")
    run = Steps(machine(program(tuple(shape), tuple(more), axis, count)), tvm.nd.array(past), new, starts)
    wanted, places = written(past, new, starts, axis), {address(run.output())}
    for _ in range(20):
        new, starts = floats(*more), RNG.integers(0, shape[axis] - 1, count).astype("int32")
        run.step(new, starts)
        wanted = written(wanted, new, starts, axis)
        places.add(address(run.output()))
        np.testing.assert_array_equal(run.output().numpy(), wanted)
        np.testing.assert_allclose(run.output(1).numpy(), wanted.sum(-1), rtol=1e-4, atol=1e-5)
    assert len(places) == 1  # copied by the first run, from what the caller holds, and never again


def test_what_a_caller_holds_is_not_written() -> None:
    given = tvm.nd.array(floats(2, 6, 3))
    before = given.numpy()
    run = Steps(machine(program((2, 6, 3), (2, 1, 3), 1)), given, floats(2, 1, 3), np.zeros(1, "int32"))
    np.testing.assert_array_equal(given.numpy(), before)
    held = run.output()
    kept = held.numpy()
    run.step(floats(2, 1, 3), np.array([3], "int32"))
    np.testing.assert_array_equal(held.numpy(), kept)
    assert address(run.output()) != address(held)


def test_calls_with_the_callers_arrays_copy() -> None:
    made = machine(program((2, 6, 3), (2, 1, 3), 1, 2))
    past, rows, starts = floats(2, 6, 3), floats(2, 1, 3), np.array([5, 0], "int32")
    for _ in range(2):
        found = made.run(past, rows, starts)[0]
        np.testing.assert_array_equal(found.numpy(), written(past, rows, starts, 1))


def test_a_buffer_that_is_read_behind_is_copied() -> None:
    past, rows, starts = floats(1, 6, 3), floats(1, 1, 3), np.array([2], "int32")
    run = Steps(machine(program((1, 6, 3), (1, 1, 3), 1, reads_past=True)), tvm.nd.array(past), rows, starts)
    for start in (0, 4):
        before, rows = run.output().numpy(), floats(1, 1, 3)
        run.step(rows, np.array([start], "int32"))
        np.testing.assert_array_equal(run.output(2).numpy(), 2 * before)
        np.testing.assert_array_equal(run.output().numpy(), written(before, rows, np.array([start]), 1))


def test_a_specialization_writes_in_place() -> None:
    func = program((2, 9, 3), (2, DimVar("length", 1, 4), 3), 1)
    with PassContext(config={"relay.vm.specialize": "length=1"}):
        made = machine(func)
    past, rows = floats(2, 9, 3), floats(2, 4, 3)
    run = Steps(made, tvm.nd.array(past), rows, np.zeros(1, "int32"))
    wanted, places = written(past, rows, [0], 1), {address(run.output())}
    for start, length in enumerate((1, 1, 3, 1), 4):
        rows = floats(2, length, 3)
        run.step(rows, np.array([start], "int32"))
        wanted = written(wanted, rows, [start], 1)
        np.testing.assert_array_equal(run.output().numpy(), wanted)
        places.add(address(run.output()))
    assert len(places) == 1


def test_a_run_without_the_buffer_is_an_error() -> None:
    made = machine(program((1, 6, 3), (1, 1, 3), 1))
    run = Steps(made, tvm.nd.array(floats(1, 6, 3)), floats(1, 1, 3), np.zeros(1, "int32"))
    run.step(floats(1, 1, 3), np.zeros(1, "int32"))
    with pytest.raises(TVMError, match='the last run wrote to the value of the parameter "past" of "main" in place'):
        run.calls[1]("main")


@pytest.mark.parametrize("start", [-1, 6])
def test_rows_beside_the_buffer_are_an_error(start: int) -> None:
    made = machine(program((2, 6, 3), (2, 1, 3), 1, 2))
    with pytest.raises(TVMError, match=f"rows of item 1 begin at {start}; the buffer has room for them at 0 to 5"):
        made.run(floats(2, 6, 3), floats(2, 1, 3), np.array([0, start], "int32"))


def test_text() -> None:
    mod = transform.InferType()(IRModule.from_expr(program((2, 4, 6, 3), (2, 4, 1, 3), 2)))
    assert "vm.write_rows(%past, %rows, %starts, axis=2)" in str(transform.WriteInPlace()(mod))
    with tvm.target.Target("opencl"):
        assert "vm.write_rows" not in str(transform.WriteInPlace()(mod))


def test_time_does_not_follow_the_length_of_the_buffer() -> None:
    """Least of many steps; a copy of 8 MB takes about a millisecond, writing 512 bytes about ten microseconds."""
    params = [relay.var(n, shape=s) for n, s in (("past", (1, 8, 4096, 64)), ("rows", (1, 8, 1, 64)))]
    starts = relay.var("starts", shape=(1,), dtype="int32")
    made = machine(relay.Function([*params, starts], relay.Tuple([relay.write_rows(*params, starts, axis=2)])))
    run = Steps(made, tvm.nd.array(np.zeros((1, 8, 4096, 64), "float32")), floats(1, 8, 1, 64), np.zeros(1, "int32"))
    rows, start = floats(1, 8, 1, 64), np.ones(1, "int32")
    held, copied = None, []
    for hold in (False, True):
        seconds = []
        for _ in range(15):
            began = time.process_time()
            run.step(rows, start)
            seconds.append(time.process_time() - began)
            held = run.output() if hold else None
        copied.append(min(seconds[2:]))
    assert held is not None and copied[0] * 4 < copied[1], f"in place {copied[0]:.2e} s, copied {copied[1]:.2e}"
