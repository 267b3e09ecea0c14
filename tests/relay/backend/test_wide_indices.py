"""Tensors of more than 2^31 elements: of mapped zeros that no test fills, so that each touches a few elements."""

from __future__ import annotations

import mmap
import re
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.prim_expr import DimVar
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.expr import Call
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.ndarray import NDArray, numpyasarray
from tilewright.runtime.vm import VirtualMachine

_COLUMNS = 1 << 20
_ROWS = (1 << 11) + 1  # 2^31 + 2^20 elements


def _zeros() -> np.ndarray[Any, Any]:
    """Zeros that take no memory before they are written to, aligned as tensors are."""
    return np.frombuffer(mmap.mmap(-1, _ROWS * _COLUMNS), np.uint8).reshape(_ROWS, _COLUMNS)


@pytest.fixture(scope="module")
def data() -> NDArray:
    whole = _zeros()
    whole[-1, -3:], whole[-2, :2] = (5, 6, 7), (8, 9)
    return numpyasarray(whole)


def _module(body: Any, rows: Any = _ROWS) -> tvm.IRModule:
    x = relay.var("x", shape=(rows, _COLUMNS), dtype="uint8")
    return tvm.IRModule.from_expr(relay.Function([x], body(x)))


def _corner(x: Any) -> Call:
    return relay.strided_slice(x, [_ROWS - 2, _COLUMNS - 3], [_ROWS, _COLUMNS])


def _picked(x: Any) -> Call:
    return relay.take(x, relay.const(np.array([-1, 2**31 + 2**20 - 2, 0], "int64")), mode="wrap")


_CASES = {
    "slice": (_corner, [[0, 0, 0], [5, 6, 7]]),
    "add and slice": (lambda x: _corner(relay.add(x, relay.const(np.uint8(1)))), [[1, 1, 1], [6, 7, 8]]),
    "take": (_picked, [7, 6, 0]),
    "slice of the transposed": (lambda x: _corner_of_transposed(x), [[0, 5], [0, 6], [0, 7]]),
}


def _corner_of_transposed(x: Any) -> Call:
    turned = relay.transpose(x)
    return relay.strided_slice(turned, [_COLUMNS - 3, _ROWS - 2], [_COLUMNS, _ROWS])


def _fused(mod: tvm.IRModule) -> str:
    with tvm.transform.PassContext(opt_level=3), tvm.target.Target("llvm"):
        fused, _ = relay.optimize(mod, "llvm")
        return str(LowerTE("llvm")(fused))


@pytest.mark.parametrize("name", ["slice", "take"])
def test_elements_beyond_two_to_the_31_are_reached(data: NDArray, name: str) -> None:
    body, expected = _CASES[name]
    executor = GraphModule(relay.build(_module(body), "llvm")["default"](tvm.cpu()))
    executor.set_input_zero_copy("x", data)
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


@pytest.mark.parametrize("name", sorted(_CASES))
def test_kernels_over_large_tensors_count_in_64_bits(name: str) -> None:
    text = _fused(_module(_CASES[name][0]))
    assert "int64" in text.split("primfn", 1)[1]
    literals = [int(n) for n in re.findall(r"(?<![\w.])(-?\d+)(?!\w*i64|\w)", text.split("primfn", 1)[1])]
    assert all(-(2**31) <= n < 2**31 for n in literals), "a number has wrapped or is too large for its type"


def test_other_kernels_count_in_32_bits() -> None:
    x = relay.var("x", shape=(1 << 10, 1 << 20), dtype="uint8")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, relay.const(np.uint8(1)))))
    assert "int64" not in _fused(mod).split("primfn", 1)[1]


def _last(x: Any) -> Call:
    return relay.strided_slice(x, [-2, -3], [2**31 - 1, 2**31 - 1])


def _bits(body: Any, rows: Any) -> set[int]:
    kernel = _fused(_module(body, rows)).split("primfn")[-1]
    return {bits for bits in (32, 64) if f"for (i0.i1.fused: int{bits}" in kernel or f".outer: int{bits}" in kernel}


def test_elements_beyond_two_to_the_31_of_named_dimensions_are_reached(data: NDArray) -> None:
    net = _module(lambda x: _last(relay.add(x, relay.const(np.uint8(1)))), DimVar("rows", 1, None, 1))
    machine = VirtualMachine(relay.vm.compile(net, "llvm"), tvm.cpu())
    np.testing.assert_array_equal(machine.run(data).numpy(), [[1, 1, 1], [6, 7, 8]])
    assert (machine.run(np.ones((2, _COLUMNS), "uint8")).numpy() == 2).all()


def test_operators_with_schedules_of_their_own_count_in_64_bits_by_the_range(data: NDArray) -> None:
    def pooled(x: Any) -> Call:
        image = relay.reshape(x, (1, 1, -1, _COLUMNS))
        return relay.nn.max_pool2d(image, pool_size=(1, 1), strides=(_ROWS - 1, _COLUMNS - 1))

    machine = VirtualMachine(relay.vm.compile(_module(pooled, DimVar("rows", 1, _ROWS, 1)), "llvm"), tvm.cpu())
    np.testing.assert_array_equal(machine.run(data).numpy().reshape(2, 2), [[0, 0], [0, 7]])
    machine = VirtualMachine(relay.vm.compile(_module(pooled, DimVar("rows", 1, None, 1)), "llvm"), tvm.cpu())
    with pytest.raises(tvm.TVMError, match=r"max_pool2d.*--dim NAME=1:LIMIT.* does not hold"):
        machine.run(data)


def test_the_range_of_a_dimension_decides_the_bits_of_indices() -> None:
    def negated(x: Any) -> Call:
        return relay.negative(x)

    assert _bits(negated, DimVar("rows", 1, None, 1)) == {64}
    assert _bits(negated, DimVar("rows", 1, _ROWS, 1)) == {64}
    assert _bits(negated, DimVar("rows", 1, 100, 1)) == {32}


def test_operators_that_keep_positions_in_32_bits_refuse_more(data: NDArray) -> None:
    net = _module(lambda x: relay.argsort(x, axis=0), DimVar("rows", 1, None, 1))
    machine = VirtualMachine(relay.vm.compile(net, "llvm"), tvm.cpu())
    with pytest.raises(tvm.TVMError, match=r"argsort.*counted in 32 bits.*1048576.* <= .*2147221504.* does not hold"):
        machine.run(data)
    with pytest.raises(tvm.TVMError, match=r"argsort: positions have 32 bits"):
        relay.build(_module(lambda x: relay.argsort(x, axis=0)), "llvm")


@pytest.mark.parametrize("rows", [_ROWS, DimVar("rows", 1, None, 1)], ids=["known", "named"])
def test_scatter_counts_in_as_many_bits_as_the_extents(rows: Any) -> None:
    x = relay.var("x", shape=(rows, _COLUMNS), dtype="uint8")
    at, new = relay.var("at", shape=(2, 1), dtype="int64"), relay.var("new", shape=(1,), dtype="uint8")
    mod = tvm.IRModule.from_expr(relay.Function([x, at, new], relay.scatter_nd(x, at, new)))
    kernel = _fused(mod).split("primfn")[-1]
    assert "1048576i64" in kernel and "cast(int32" not in kernel
