"""Packed functions: what goes in, what comes out, and how errors travel."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy as np
import pytest

from tilewright import runtime
from tilewright.runtime.packed_func import PackedFunc, convert_to_packed
from tilewright.runtime.registry import convert


def through_c(function: Any) -> PackedFunc:
    """A PackedFunc of a Python function that is really called through C."""
    packed = convert_to_packed(function)
    packed.python = None
    return packed


@pytest.mark.parametrize("value", [None, 0, -5, 1 << 40, 2.5, "text", "ünïcode", b"by\0tes", b"", ""])
def test_plain_values_go_there_and_back(value: Any) -> None:
    result = through_c(lambda x: x)(value)
    assert result == value
    assert type(result) is type(value)


def test_numpy_scalars_and_bools_are_numbers() -> None:
    echo = through_c(lambda *x: sum(x))
    assert echo(True, np.int32(2), np.bool_(True), np.uint8(3)) == 7
    assert echo(np.float32(0.5), 1) == 1.5


def test_devices_types_functions_and_handles_go_there_and_back(compiled: runtime.Module) -> None:
    echo = through_c(lambda x: x)
    assert echo(runtime.cuda(3)) == runtime.cuda(3)
    assert echo(runtime.DataType("int8x4")) is runtime.DataType("int8x4")
    assert echo(compiled) == compiled
    assert echo(lambda x: x + 1)(2) == 3
    assert echo(ctypes.c_void_p(1234)).value == 1234


def test_arrays_keep_their_identity() -> None:
    array = runtime.array(np.arange(3.0))
    result = through_c(lambda x: x)(array)
    assert result.same_as(array)
    del array
    np.testing.assert_array_equal(result.numpy(), [0, 1, 2])


def test_numpy_arrays_are_lent_without_a_copy() -> None:
    values = np.arange(6.0).reshape(2, 3)[:, ::-1]

    def check(lent: runtime.NDArray) -> float:
        assert lent.shape == (2, 3)
        np.testing.assert_array_equal(lent.numpy(), values)
        lent.copyfrom(values + 1)
        return float(lent.numpy()[0, 0])

    assert through_c(check)(values) == 3.0
    assert values[0, 0] == 3.0


def test_a_lent_array_may_be_returned() -> None:
    result = through_c(lambda x: x)(np.arange(4))
    np.testing.assert_array_equal(result.numpy(), [0, 1, 2, 3])


def test_python_exceptions_come_back_as_they_were() -> None:
    class Custom(Exception):
        pass

    def fail(code: int) -> None:
        raise Custom("went wrong", code)

    with pytest.raises(Custom, match="went wrong") as caught:
        through_c(fail)(7)
    assert caught.value.args == ("went wrong", 7)


def test_errors_cross_several_layers() -> None:
    inner = through_c(lambda: {}["missing"])
    with pytest.raises(KeyError, match="missing"):
        through_c(lambda: inner())()


def test_values_that_cannot_be_passed_are_named() -> None:
    with pytest.raises(TypeError, match="cannot pass dict"):
        through_c(lambda x: None)({})
    with pytest.raises(TypeError, match="cannot pass object"):
        through_c(lambda: object())()
    with pytest.raises(OverflowError, match="64 bits"):
        through_c(lambda x: None)(1 << 70)


def test_registered_functions_are_found_replaced_and_removed() -> None:
    @runtime.register_func("test.registered")
    def add(x: int, y: int) -> int:
        return x + y

    assert runtime.get_global_func("test.registered")(2, 3) == 5
    assert "test.registered" in runtime.list_global_func_names()
    with pytest.raises(runtime.TVMError, match="already registered"):
        runtime.register_func("test.registered", add)
    runtime.register_func("test.registered", lambda x, y: x * y, override=True)
    assert runtime.get_global_func("test.registered")(2, 3) == 6
    runtime.remove_global_func("test.registered")
    assert runtime.get_global_func("test.registered", allow_missing=True) is None
    with pytest.raises(ValueError, match=r"Cannot find global function test\.registered"):
        runtime.get_global_func("test.registered")


def test_python_calls_python_directly() -> None:
    marker = object()
    runtime.register_func("test.identity", lambda x: x, override=True)
    assert runtime.get_global_func("test.identity")(marker) is marker
    runtime.remove_global_func("test.identity")


def test_convert_wraps_callables_in_containers() -> None:
    converted = convert([lambda: 1, 5, {"f": lambda: 2}])
    assert isinstance(converted[0], PackedFunc)
    assert converted[1] == 5
    assert converted[2]["f"]() == 2


def test_callbacks_are_freed() -> None:
    from tilewright.runtime import packed_func

    gc.collect()  # what other tests left
    before = len(packed_func._callables)
    for _ in range(100):
        through_c(lambda x: x)(1)
    assert len(packed_func._callables) == before


def test_functions_work_from_several_threads() -> None:
    double = through_c(lambda x: f"{x}{x}")
    failures: list[str] = []

    def work(name: str) -> None:
        for _ in range(300):
            if double(name) != name + name:
                failures.append(name)

    threads = [threading.Thread(target=work, args=(letter * 50,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_convert_leaves_nodes_as_they_are() -> None:
    from tilewright import relay

    call = relay.exp(relay.var("x"))
    assert convert([call])[0] is call


def test_a_function_is_registered_by_its_own_name() -> None:
    @runtime.register_func
    def function_of_a_test(x: int) -> int:
        return x + 1

    try:
        found = runtime.get_global_func("function_of_a_test")
        assert found is not None
        assert found(1) == 2
    finally:
        runtime.remove_global_func("function_of_a_test")
