"""Element types that users bring: a fixed-point type of 16 and 32 bits, computed by a library of C functions."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.target import datatype
from tilewright.tir.transform import lower_custom_datatypes as lowering

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

CODE = 201
NAME = "testfixed"
# numbers in units of 1/256
SOURCE = """
#include <stdint.h>
#include <math.h>
#define TYPE(bits)                                                                                              \\
  uint##bits##_t tf_from_float##bits(float x) { return (uint##bits##_t)(int##bits##_t)lrintf(x * 256); }        \\
  float tf_to_float##bits(uint##bits##_t x) { return (float)(int##bits##_t)x / 256; }                           \\
  uint##bits##_t tf_add##bits(uint##bits##_t a, uint##bits##_t b) { return a + b; }                             \\
  uint##bits##_t tf_sub##bits(uint##bits##_t a, uint##bits##_t b) { return a - b; }                             \\
  uint##bits##_t tf_mul##bits(uint##bits##_t a, uint##bits##_t b) {                                             \\
    return (uint##bits##_t)(((int64_t)(int##bits##_t)a * (int##bits##_t)b) >> 8);                               \\
  }                                                                                                             \\
  uint##bits##_t tf_max##bits(uint##bits##_t a, uint##bits##_t b) {                                             \\
    return (int##bits##_t)a > (int##bits##_t)b ? a : b;                                                         \\
  }                                                                                                             \\
  uint##bits##_t tf_sqrt##bits(uint##bits##_t a) { return tf_from_float##bits(sqrtf(tf_to_float##bits(a))); }   \\
  uint##bits##_t tf_min##bits(void) { return (uint##bits##_t)1 << (bits - 1); }
TYPE(16)
TYPE(32)
"""


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder: Path = tmp_path_factory.mktemp("fixed")
    (folder / "fixed.c").write_text(SOURCE)
    flags = ["-shared", "-fPIC", "-O1"]
    subprocess.run(["cc", *flags, folder / "fixed.c", "-o", folder / "libfixed.so", "-lm"], check=True)
    ctypes.CDLL(str(folder / "libfixed.so"), ctypes.RTLD_GLOBAL)
    datatype.register(NAME, CODE)
    both = (16, 32)

    def one(name: str) -> Any:
        return datatype.create_lower_func({bits: f"tf_{name}{bits}" for bits in both})

    register = datatype.register_op
    register(datatype.create_lower_func({(32, b): f"tf_from_float{b}" for b in both}), "Cast", "llvm", "float", NAME)
    register(datatype.create_lower_func({(b, 32): f"tf_to_float{b}" for b in both}), "Cast", "llvm", NAME, "float")
    for operation in ("Add", "Sub", "Mul", "Max"):
        register(one(operation.lower()), operation, "llvm", NAME)
    register(one("from_float"), "FloatImm", "llvm", NAME)
    register(one("sqrt"), "Call", "llvm", NAME, intrinsic_name="tir.sqrt")
    register(datatype.lower_ite, "Call", "llvm", NAME, intrinsic_name="tir.if_then_else")
    register(datatype.lower_call_pure_extern, "Call", "llvm", NAME, intrinsic_name="tir.call_pure_extern")
    datatype.register_min_func(datatype.create_min_lower_func({b: f"tf_min{b}" for b in both}, NAME), NAME)
    yield
    for key in [k for k in lowering.LOWERING if k[2] == NAME]:
        del lowering.LOWERING[key]
    lowering.SMALLEST.pop(NAME)


def fixed(x: Any, bits: int) -> np.ndarray:
    """The type's numbers as bits."""
    return np.rint(np.asarray(x, "float32") * 256).astype(f"int{bits}").view(f"uint{bits}")


def run(make: Any, *arrays: np.ndarray, dtype: str = "float32") -> np.ndarray:
    tensors = [te.placeholder(a.shape, str(a.dtype), f"a{k}") for k, a in enumerate(arrays)]
    out = make(*tensors)
    assert out.dtype == dtype
    built = tvm.build(te.create_schedule(out.op), [*tensors, out], "llvm")
    result = tvm.nd.empty([int(d) for d in out.shape], dtype)
    built(*map(tvm.nd.array, arrays), result)
    return result.numpy()


VALUES = np.array([0.5, -1.25, 3, 7.75, -0.125], "float32")


@pytest.mark.parametrize("bits", [16, 32])
def test_arithmetic(bits: int) -> None:
    own = f"custom[{NAME}]{bits}"

    def make(a: te.Tensor) -> te.Tensor:
        def body(i: Any) -> Any:
            x = a[i].astype(own)
            return (tir.max(x * x - tir.const(2, own), x) + x).astype("float32")

        return te.compute(a.shape, body)

    np.testing.assert_array_equal(run(make, VALUES), np.maximum(VALUES * VALUES - 2, VALUES) + VALUES)


@pytest.mark.parametrize("bits", [16, 32])
def test_arrays_hold_the_numbers_as_bits(bits: int) -> None:
    own = f"custom[{NAME}]{bits}"
    numbers = run(lambda a: te.compute(a.shape, lambda i: a[i].astype(own)), VALUES, dtype=own)
    assert numbers.dtype == f"uint{bits}"
    np.testing.assert_array_equal(numbers, fixed(VALUES, bits))


def test_reductions_start_from_the_smallest_value() -> None:
    own = f"custom[{NAME}]32"

    def make(a: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, 5))
        top = te.compute((1,), lambda i: te.max(a[k].astype(own), axis=k), name="top")
        return te.compute((1,), lambda i: tir.sqrt(top[i]).astype("float32"))

    np.testing.assert_array_equal(run(make, VALUES - 3), np.rint(np.sqrt(np.array([4.75], "float32")) * 256) / 256)
    assert run(lambda a: make(a), VALUES)[0] > 2


def test_choices_and_memory() -> None:
    own = f"custom[{NAME}]16"

    def make(a: te.Tensor) -> te.Tensor:
        wide = te.compute((7,), lambda i: tir.if_then_else(i < 5, a[i].astype(own), tir.const(1, own)), name="wide")
        return te.compute((5,), lambda i: (wide[i + 2] - wide[i]).astype("float32"))

    wide = np.append(VALUES, [1, 1])
    np.testing.assert_array_equal(run(make, VALUES), wide[2:] - wide[:-2])


def test_networks() -> None:
    own = f"custom[{NAME}]32"
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(3,))
    total = relay.nn.relu(relay.cast(x, own) + relay.cast(y, own)) * relay.cast(y, own)
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.cast(total, "float32")))
    given = np.array([[1, -2, 3], [0.5, 0.25, -7]], "float32"), np.array([1, 1.5, 4], "float32")
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True}):
        found = relay.create_executor("graph", mod=mod).evaluate()(*given).numpy()
    np.testing.assert_array_equal(found, np.maximum(given[0] + given[1], 0) * given[1])


def test_a_network_changes_its_type() -> None:
    """Parameters, parts of tuples, constants, and what operators are asked for; no other dtype."""
    own = f"custom[{NAME}]32"
    change = relay.frontend.ChangeDatatype("float32", own)
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", relay.TupleType([relay.TensorType((3,))]))
    counts = relay.var("counts", shape=(), dtype="int32")
    total = x * relay.const(np.full((3,), 0.5, "float32")) + relay.TupleGetItem(w, 0) - relay.ones((2, 3), "float32")
    changed = change(tvm.IRModule.from_expr(relay.Function([x, w, counts], total)))["main"]
    assert change.dst == own and changed.params[2].checked_type.dtype == "int32"
    made = change(tvm.IRModule.from_expr(relay.Function([x], x + relay.ones((2, 3), "float32"))))["main"]
    assert [made.ret_type.dtype, made.body.args[1].attrs.dtype] == [own, own]
    y, z = relay.var("y", shape=(2, 3)), relay.var("z", shape=(3,))
    found = relay.Call(changed, [y.astype(own), relay.Tuple([z.astype(own)]), relay.const(0)]).astype("float32")
    mod = tvm.IRModule.from_expr(relay.Function([y, z], found))
    given = np.array([[1, -2, 3], [0.5, 0.25, -7]], "float32"), np.array([1, 1.5, 4], "float32")
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        result = relay.create_executor("graph", mod=mod).evaluate()(*given).numpy()
    np.testing.assert_array_equal(result, given[0] * 0.5 + given[1] - 1)


def test_a_type_crosses_between_networks() -> None:
    own = f"custom[{NAME}]32"
    x = relay.var("x", shape=(5,))
    z = relay.var("z", shape=(5,), dtype=own)
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        to = relay.create_executor("graph").evaluate(relay.Function([x], relay.cast(x, own)))(VALUES)
        assert str(to.dtype) == own
        back = relay.create_executor("graph").evaluate(relay.Function([z], relay.cast(z, "float32")))(to)
    np.testing.assert_array_equal(back.numpy(), VALUES)


def test_names_and_codes() -> None:
    assert datatype.get_type_name(CODE) == NAME
    assert datatype.get_type_code(NAME) == CODE
    assert datatype.get_type_registered(CODE)
    assert not datatype.get_type_registered(250)
    with pytest.raises(ValueError, match="code 250"):
        datatype.get_type_name(250)
    with pytest.raises(tvm.TVMError, match="that of testfixed"):
        datatype.register("another", CODE)
    with pytest.raises(tvm.TVMError, match="not in 129"):
        datatype.register("another", 12)


def test_an_unknown_type_says_how_to_register_it() -> None:
    with pytest.raises(ValueError, match=r"custom\[unheard\].*datatype\.register\('unheard'"):
        tir.const(1, "custom[unheard]32")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (lambda x: tir.exp(x), r"no lowering function of Call of tir\.exp for testfixed on llvm"),
        (lambda x: x / x, "no lowering function of Div for testfixed"),
        (lambda x: x.astype(f"custom[{NAME}]16"), "no lowering function of Cast of testfixed"),
    ],
)
def test_a_missing_function_is_named(body: Any, why: str) -> None:
    with pytest.raises(TilewrightError, match=why):
        own = f"custom[{NAME}]32"
        run(lambda a: te.compute(a.shape, lambda i: body(a[i].astype(own)).astype("float32")), VALUES)


def test_vectors_are_refused_with_a_remedy() -> None:
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i].astype(f"custom[{NAME}]32").astype("float32"))
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[0])
    with pytest.raises(TilewrightError, match=r"tir\.disable_vectorize"):
        tvm.build(s, [a, b], "llvm")
