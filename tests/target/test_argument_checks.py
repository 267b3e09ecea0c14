"""A compiled function reports wrong arguments by name, expected and found, and touches no memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.target.codegen_helpers import build, function

import tilewright as tvm
from tilewright import te
from tilewright.runtime.module import Module
from tilewright.tir import For, Load, SizeVar, Store, Var, decl_buffer
from tilewright.tir import op as T

CANARY = 77.0


def add_matrices(target: str) -> Module:
    """C[n, 4] = A[n, 4] + B[n, 4] + scale, for any n."""
    n, i, j, scale = SizeVar("n", "int32"), Var("i", "int32"), Var("j", "int32"), Var("scale", "float32")
    a, b, c = (decl_buffer((n, 4), "float32", name) for name in "ABC")
    at = i * 4 + j
    store = Store(c.data, Load("float32", a.data, at) + Load("float32", b.data, at) + scale, at)
    return build(target, function("add", [a, b, c], For(i, 0, n, 0, For(j, 0, 4, 0, store)), [scale]))


@pytest.fixture(scope="module", params=["llvm", "llvm -mcpu=x86-64", "c"])
def add(request: pytest.FixtureRequest) -> Iterator[Module]:
    yield add_matrices(request.param)


def array(*shape: int, dtype: str = "float32") -> Any:
    return tvm.nd.array(np.full(shape, CANARY, dtype))


def refused(func: Any, *args: Any) -> str:
    """The message of a call that must fail; no array argument may have changed."""
    before = [a.numpy().copy() if isinstance(a, tvm.NDArray) else None for a in args]
    with pytest.raises(tvm.TVMError) as error:
        func(*args)
    for arg, old in zip(args, before, strict=True):
        if old is not None:
            np.testing.assert_array_equal(arg.numpy(), old)
    return str(error.value).strip().splitlines()[-1]


def test_the_right_arguments_are_taken(add: Module) -> None:
    c = array(3, 4)
    add(array(3, 4), array(3, 4), c, 1.0)
    np.testing.assert_array_equal(c.numpy(), np.full((3, 4), 2 * CANARY + 1, "float32"))


def test_empty_tensors_are_taken(add: Module) -> None:
    add(array(0, 4), array(0, 4), array(0, 4), 1.0)


def test_too_few_and_too_many_arguments(add: Module) -> None:
    assert "add: expected 4 arguments, found 2" in refused(add, array(3, 4), array(3, 4))
    assert "add: expected 4 arguments, found 5" in refused(add, *[array(3, 4)] * 3, 1.0, 2.0)


def test_wrong_rank(add: Module) -> None:
    message = refused(add, array(3, 4), array(12), array(3, 4), 1.0)
    assert "add: argument B: expected shape (3, 4), found (12,)" in message


def test_wrong_dimension(add: Module) -> None:
    message = refused(add, array(3, 5), array(3, 4), array(3, 4), 1.0)
    assert "add: argument A: expected shape (3, 4), found (3, 5)" in message


def test_dimensions_of_one_name_must_agree(add: Module) -> None:
    message = refused(add, array(3, 4), array(3, 4), array(2, 4), 1.0)
    assert "add: argument C: expected shape (3, 4), found (2, 4)" in message


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8"])
def test_wrong_dtype(add: Module, dtype: str) -> None:
    message = refused(add, array(3, 4), array(3, 4, dtype=dtype), array(3, 4), 1.0)
    assert f"add: argument B: expected float32, found {dtype}" in message


def test_none_for_a_tensor(add: Module) -> None:
    assert "add: argument A: expected a tensor, found null" in refused(add, None, array(3, 4), array(3, 4), 1.0)


@pytest.mark.parametrize(("value", "found"), [(1, "int"), (2.5, "float"), ("text", "string")])
def test_no_tensor_for_a_tensor(add: Module, value: object, found: str) -> None:
    message = refused(add, array(3, 4), value, array(3, 4), 1.0)
    assert f"add: argument B: expected a tensor, found {found}" in message


def test_no_number_for_a_scalar(add: Module) -> None:
    tensors = [array(3, 4) for _ in range(3)]
    assert "add: argument scale: expected float32, found a tensor" in refused(add, *tensors, array(1))
    assert "add: argument scale: expected float32, found int" in refused(add, *tensors, 3)


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class RawTensor:
    """A DLTensor with every field under the test's control; ``shift`` bytes off a 64-byte boundary."""

    def __init__(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        device: int = 1,
        offset: int = 0,
        shift: int = 0,
        null: bool = False,
    ) -> None:
        self.memory = np.full(4096, CANARY, "float32")
        address = self.memory.ctypes.data
        address += -address % 64 + shift
        dims = (ctypes.c_int64 * len(shape))(*shape)
        steps = (ctypes.c_int64 * len(strides))(*strides) if strides is not None else None
        self.keep = (dims, steps)
        self.tensor = _Tensor(
            None if null else address, _Device(device, 0), len(shape), _Type(2, 32, 1), dims, steps, offset
        )


def call_raw(module: Module, *tensors: RawTensor, scale: float = 1.0) -> str:
    """Call the compiled code itself; the error message, or "" for success."""
    from tilewright.runtime._ffi import LIB

    code = module.compiled_code
    assert code is not None
    address = code.lookup("add")
    assert address is not None
    func = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, ctypes.c_int32, *[ctypes.c_void_p] * 3)(address)
    values = (ctypes.c_uint64 * 4)(*[ctypes.addressof(t.tensor) for t in tensors], 0)
    ctypes.c_double.from_buffer(values, 24).value = scale
    codes = (ctypes.c_int32 * 4)(7, 7, 7, 2)
    result, result_code = ctypes.c_uint64(), ctypes.c_int32()
    status = func(values, codes, 4, ctypes.byref(result), ctypes.byref(result_code), None)
    if status == 0:
        return ""
    assert status == -1
    for tensor in tensors:
        np.testing.assert_array_equal(tensor.memory, CANARY)
    return str(LIB.TVMGetLastError().decode()).strip()


def good() -> RawTensor:
    return RawTensor((3, 4))


def test_compact_strides_are_taken(add: Module) -> None:
    assert call_raw(add, good(), RawTensor((3, 4), (4, 1)), good()) == ""


def test_strides_of_dimensions_of_size_one_do_not_matter(add: Module) -> None:
    assert call_raw(add, RawTensor((1, 4)), RawTensor((1, 4), (999, 1)), RawTensor((1, 4))) == ""


def test_other_strides(add: Module) -> None:
    message = call_raw(add, good(), RawTensor((3, 4), (8, 1)), good())
    assert message == "add: argument B: expected a compact row-major tensor, found strides of (8, 1)"


def test_another_device(add: Module) -> None:
    assert call_raw(add, good(), good(), RawTensor((3, 4), device=2)) == (
        "add: argument C: expected device type 1, found 2"
    )


def test_a_byte_offset(add: Module) -> None:
    assert call_raw(add, RawTensor((3, 4), offset=64), good(), good()) == (
        "add: argument A: expected byte_offset 0, found 64"
    )


def test_misaligned_data(add: Module) -> None:
    message = call_raw(add, good(), good(), RawTensor((3, 4), shift=4))
    assert message == "add: argument C: expected data aligned to 64 bytes, found it off by 4"


def test_null_data(add: Module) -> None:
    assert (
        call_raw(add, good(), RawTensor((3, 4), null=True), good())
        == "add: argument B: expected data, found a null one"
    )


def test_null_data_of_an_empty_tensor_is_taken(add: Module) -> None:
    empty = [RawTensor((0, 4), null=True) for _ in range(3)]
    assert call_raw(add, *empty) == ""


def test_a_negative_dimension(add: Module) -> None:
    assert call_raw(add, RawTensor((-3, 4)), good(), good()) == (
        "add: argument A: expected shape (?, 4), found (-3, 4)"
    )


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_dimension_may_be_an_expression_of_another(target: str) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.placeholder((n * 2,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i * 2], name="C")
    func = tvm.build(te.create_schedule(c.op), [a, b, c], target, name="f")
    x, y, out = array(5), array(10), array(5)
    func(x, y, out)
    np.testing.assert_array_equal(out.numpy(), 2 * CANARY)
    assert "f: argument B: expected shape[0] to be" in refused(func, array(5), array(11), array(5))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_two_dimensions_of_a_tensor_may_have_one_name(target: str) -> None:
    n = SizeVar("n", "int32")
    i = Var("i", "int32")
    a = decl_buffer((n, n), "float32", "A")
    store = Store(a.data, Load("float32", a.data, i) + 1.0, i)
    square = build(target, function("square", [a], For(i, 0, n * n, 0, store)))
    x = array(3, 3)
    square(x)
    np.testing.assert_array_equal(x.numpy(), np.full((3, 3), CANARY + 1, "float32"))
    assert "square: argument A: expected shape (3, 3), found (3, 2)" in refused(square, array(3, 2))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_scalar_argument_may_name_a_dimension(target: str) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    func = tvm.build(te.create_schedule(b.op), [n, a, b], target, name="f")
    out = array(4)
    func(4, array(4), out)
    np.testing.assert_array_equal(out.numpy(), 2 * CANARY)
    assert "f: argument A: expected shape (4,), found (5,)" in refused(func, 4, array(5), array(4))


def test_a_function_returns_values() -> None:
    x = Var("x", "int32")
    from tilewright.tir import Evaluate, PrimFunc

    body = Evaluate(T.ret(x * 2 + 1))
    for target in ("llvm", "c"):
        func = build(target, PrimFunc([x], body, None, {}, {"global_symbol": "f"}))
        assert func(20) == 41
