"""qnn.simulated_quantize and qnn.simulated_dequantize: of a type, scales and zero points that the program chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.relay.interpreter import interpret
from tilewright.relay.qnn.op import quantize, simulated_dequantize, simulated_quantize
from tilewright.topi.nn.qnn import SQNN_DTYPE_TO_CODE

RNG = np.random.default_rng(3)
DATA = RNG.uniform(-90, 90, (2, 5, 3)).astype("float32")
SCALES, ZEROS = RNG.uniform(0.1, 1, 5).astype("float32"), RNG.integers(-9, 9, 5, dtype="int32")


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    made = {}
    for name, build in (("quantize", simulated_quantize), ("dequantize", simulated_dequantize)):
        x, s, z, code = (
            relay.var(n, shape=shape, dtype=dtype)
            for n, shape, dtype in (("x", DATA.shape, "float32"), ("s", (5,), "float32"), ("z", (5,), "int32"),
                                    ("code", (), "int32"))
        )  # fmt: skip
        mod = tvm.IRModule.from_expr(relay.Function([x, s, z, code], build(x, s, z, 1, code)))
        made[name] = (mod, graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu())))
    return made


def ran(program: Any, dtype: str) -> Any:
    mod, executor = program
    code = np.int32(SQNN_DTYPE_TO_CODE[dtype])
    executor.run(x=DATA, s=SCALES, z=ZEROS, code=code)
    found = executor.get_output(0).numpy()
    np.testing.assert_array_equal(found, interpret(mod, [DATA, SCALES, ZEROS, np.asarray(code)]))
    return found


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_one_program_quantizes_to_every_type(dtype: str, programs: dict[str, Any]) -> None:
    x = relay.var("x", shape=DATA.shape)
    real = quantize(x, relay.const(SCALES), relay.const(ZEROS), 1, dtype)
    wanted = interpret(relay.transform.InferType()(tvm.IRModule.from_expr(real)), [DATA])
    np.testing.assert_array_equal(ran(programs["quantize"], dtype), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_one_program_dequantizes_every_type(dtype: str, programs: dict[str, Any]) -> None:
    wanted = (DATA - ZEROS[:, None].astype("float32")) * SCALES[:, None]
    np.testing.assert_array_equal(ran(programs["dequantize"], dtype), wanted)


@pytest.mark.parametrize("name", ["quantize", "dequantize"])
def test_disabled_it_gives_its_data(name: str, programs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(ran(programs[name], "disable"), DATA)


def test_a_number_serves_the_whole_tensor() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(simulated_quantize(x, 0.5, 3, out_dtype="uint8"))
    data = np.array([[0, 1, 2], [-9, 0.25, 200]], "float32")
    assert interpret(relay.transform.InferType()(mod), [data]).tolist() == [[3, 5, 7], [0, 3, 255]]


def test_a_type_without_a_code_is_named() -> None:
    with pytest.raises(TilewrightError, match="one of disable, int8, uint8, int32, found 'int4'"):
        simulated_quantize(relay.var("x", shape=(2,)), 1.0, 0, out_dtype="int4")


def test_lengths_are_compared() -> None:
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(TypeInferenceError, match="output_scale has 2 elements"):
        relay.transform.InferType()(
            tvm.IRModule.from_expr(simulated_quantize(x, relay.const(np.ones(2, "float32")), 0))
        )
