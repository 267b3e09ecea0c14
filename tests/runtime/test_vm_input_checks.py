"""What the virtual machine calls to look at inputs, given damaged arguments: an error, and memory is left alone."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.runtime._ffi import LIB, TVMValue

TENSOR = 7  # the code of a DLTensor
ROW = [0, 0, 1, 4, 2]  # input 0, axis 0: 1 to 4, a multiple of 2


def tensor(values: Any, dtype: str) -> Any:
    return tvm.nd.array(np.array(values, dtype))


def dims_are(*args: Any) -> None:
    tvm.get_global_func("tilewright.vm.dims_are")(*args)


def limits(*rows: list[int]) -> Any:
    return tensor(np.reshape(rows, (-1, 5)), "int64")


@pytest.mark.parametrize(("extent", "fits"), [(2, 1), (4, 1), (3, 0), (6, 0), (0, 0)])
def test_the_flag_says_whether_dimensions_are_within_the_limits(extent: int, fits: int) -> None:
    flag = tensor(7, "int32")
    dims_are(limits(ROW), tensor(np.zeros(extent), "float32"), flag)
    assert int(flag.numpy()) == fits


@pytest.mark.parametrize(
    "row",
    [
        [-1, 0, 1, 4, 1], [1, 0, 1, 4, 1], [2**62, 0, 1, 4, 1], [0, -1, 1, 4, 1], [0, 1, 1, 4, 1], [0, 2**62, 1, 4, 1],
        [0, 0, 1, 4, 0], [0, 0, 1, 4, -3],
    ],
)  # fmt: skip
def test_a_row_that_names_what_is_not_there(row: list[int]) -> None:
    flag = tensor(7, "int32")
    with pytest.raises(tvm.TVMError, match="damaged guard: row 1"):
        dims_are(limits(ROW, row), tensor(np.zeros(2), "float32"), flag)
    assert int(flag.numpy()) == 7


def test_limits_and_flags_of_other_types() -> None:
    x, flag = tensor([1, 2], "float32"), tensor(7, "int32")
    for wrong in (tensor([ROW], "int32"), tensor(ROW, "int64"), tensor([ROW[:4]], "int64"), tensor([ROW], "float64")):
        with pytest.raises(tvm.TVMError, match=r"no int64\[n, 5\]"):
            dims_are(wrong, x, flag)
    for wrong in (tensor(7, "int64"), tensor([7], "int32"), tensor(7, "float32")):
        with pytest.raises(tvm.TVMError, match="result is no int32"):
            dims_are(limits(ROW), x, wrong)


def test_arguments_that_are_missing_or_no_tensors() -> None:
    x, flag = tensor([1, 2], "float32"), tensor(7, "int32")
    for few in ((), (limits(ROW),)):
        with pytest.raises(tvm.TVMError, match="damaged guard"):
            dims_are(*few)
    with pytest.raises(tvm.TVMError, match="damaged guard: row 0"):
        dims_are(limits(ROW), flag)  # no input
    for place in range(3):
        for wrong in (None, 3, 2.5, "text"):
            args = [limits(ROW), x, flag]
            args[place] = wrong
            with pytest.raises(tvm.TVMError, match=f"argument {place} is no tensor"):
                dims_are(*args)


class _Tensor(ctypes.Structure):
    """DLTensor: device and data type as numbers."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Raw:
    """A tensor with every field under the test's control."""

    def __init__(self, memory: np.ndarray, shape: tuple[int, ...], code: int, bits: int, null: bool = False) -> None:
        self.memory, self.dims = memory, (ctypes.c_int64 * max(len(shape), 1))(*shape)
        data = None if null else memory.ctypes.data
        self.tensor = _Tensor(data, 1, 0, len(shape), code, bits, 1, ctypes.addressof(self.dims), None, 0)


def call_raw(name: str, *args: Raw | None) -> str:
    """The error of a call with these tensors; None is a tensor's code beside a null pointer."""
    func, result, code = ctypes.c_void_p(), TVMValue(), ctypes.c_int()
    assert LIB.TVMFuncGetGlobal(name.encode(), ctypes.byref(func)) == 0
    values = (TVMValue * len(args))()
    for value, arg in zip(values, args, strict=True):
        value.v_handle = None if arg is None else ctypes.addressof(arg.tensor)
    codes = (ctypes.c_int * len(args))(*[TENSOR] * len(args))
    status = LIB.TVMFuncCall(func, values, codes, len(args), ctypes.byref(result), ctypes.byref(code))
    return "" if status == 0 else str(LIB.TVMGetLastError().decode())


def test_null_tensors_and_null_data() -> None:
    rows, data, result = np.array([ROW]), np.zeros(2, "float32"), np.array(7, "int32")
    given = [Raw(rows, (1, 5), 0, 64), Raw(data, (2,), 2, 32), Raw(result, (), 0, 32)]
    name = "tilewright.vm.dims_are"
    assert call_raw(name, *given) == "" and int(result) == 1
    for place in range(3):
        args: list[Raw | None] = list(given)
        args[place] = None
        assert f"argument {place} is no tensor" in call_raw(name, *args)
    without = [Raw(rows, (1, 5), 0, 64, null=True), given[1], given[2]]
    assert "no int64[n, 5]" in call_raw(name, *without)
    assert "no int32" in call_raw(name, *given[:2], Raw(result, (), 0, 32, null=True))
    assert "no int64[n, 5]" in call_raw(name, Raw(rows, (-1, 5), 0, 64), *given[1:])


def test_a_damaged_interface() -> None:
    name, text = "tilewright.vm.check_inputs", np.frombuffer(b"input\tfloat32\t2\tx\n", "uint8").copy()
    x = Raw(np.zeros(2, "float32"), (2,), 2, 32)
    assert call_raw(name, Raw(text, (len(text),), 1, 8), x) == ""
    for damaged in (Raw(text, (len(text),), 1, 8, null=True), Raw(text, (-1,), 1, 8), Raw(text, (1,), 2, 8)):
        assert "its text is no vector of bytes" in call_raw(name, damaged, x)
    assert "argument 1 is no tensor" in call_raw(name, Raw(text, (len(text),), 1, 8), None)
    assert "more inputs than the 0" in call_raw(name, Raw(text, (len(text),), 1, 8))
    for bad in (b"dim\tn\tx\t4\t1\n", b"dim\tn\t1\t4\t0\n", b"dim\tn\n", b"dim\n"):
        line = np.frombuffer(bad, "uint8").copy()
        assert "damaged interface" in call_raw(name, Raw(line, (len(line),), 1, 8))


def test_damaged_sizes() -> None:
    name, rows, size = "tilewright.vm.sizes", np.array([[12, 0, 1]]), np.array(0, "int64")
    x, plan, result = Raw(np.zeros(6, "float32"), (2, 3), 2, 32), Raw(rows, (1, 3), 0, 64), Raw(size, (), 0, 64)
    assert call_raw(name, plan, x, result) == "" and int(size) == 36
    for damaged in (Raw(rows, (1, 3), 0, 64, null=True), Raw(rows, (-1, 3), 0, 64), Raw(rows, (1, 3), 0, 32)):
        assert "no int64[n, m]" in call_raw(name, damaged, x, result)
    assert "no int64[n, m]" in call_raw(name)
    assert "a result is no int64" in call_raw(name, plan, x, Raw(size, (), 0, 64, null=True))
    assert "argument 1 is no tensor" in call_raw(name, plan, None, result)
    for row in ([12, 1, 0], [12, 0, 2], [12, 0, -1]):
        assert "damaged sizes: dimension" in call_raw(name, Raw(np.array([row]), (1, 3), 0, 64), x, result)


@pytest.mark.parametrize("dim", ["a+", "+a", "a+c", "a+-1", "a+9223372036854775807+9", "a++b"])
def test_sums_of_what_is_not_there(dim: str) -> None:
    text = f"input\tfloat32\ta,b\tx\ninput\tfloat32\t{dim}\ty\n\n"
    x, y = tensor(np.zeros((2, 3)), "float32"), tensor(np.zeros(5), "float32")
    check = tvm.get_global_func("tilewright.vm.check_inputs")
    check(tensor(list(text.replace(dim, "a+b").encode()), "uint8"), x, y)
    with pytest.raises(tvm.TVMError, match=r"damaged interface: the dimension|of other inputs, is"):
        check(tensor(list(text.encode()), "uint8"), x, y)
