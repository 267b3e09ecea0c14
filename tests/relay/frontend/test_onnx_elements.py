"""Elements that numpy lacks are read as the format says, with every release of onnx that Tilewright takes.

The bytes are written by hand from ONNX's description of ``TensorProto``; older releases of onnx have no names for the
types, and read them differently.
"""

import numpy as np
import onnx
import pytest

from tilewright.relay.frontend.onnx.attributes import to_array

# By the type's number: a byte, or 16 bits, and the elements in it, the lowest first.
CASES = {
    16: (0xC0A0, [-5.0]),  # bfloat16
    17: (0x38, [1.0]),  # float8_e4m3fn: bias 7
    18: (0x38, [0.5]),  # float8_e4m3fnuz: bias 8
    19: (0x3C, [1.0]),  # float8_e5m2: bias 15
    20: (0x3C, [0.5]),  # float8_e5m2fnuz: bias 16
    21: (0xE1, [1, 14]),  # uint4
    22: (0xE1, [1, -2]),  # int4
    23: (0xD7, [6.0, -3.0]),  # float4_e2m1
    24: (0x80, [2.0]),  # float8_e8m0: a power of two
    25: (0b11_10_01_00, [0, 1, 2, 3]),  # uint2
    26: (0b11_10_01_00, [0, 1, -2, -1]),  # int2
}


def _tensor(number: int, raw: bool, count: int) -> onnx.TensorProto:
    word, elements = CASES[number]
    words = -(-count // len(elements))
    tensor = onnx.TensorProto(data_type=number, dims=[count])
    if raw:
        tensor.raw_data = word.to_bytes(2 if number == 16 else 1, "little") * words
    else:
        tensor.int32_data.extend([word] * words)
    return tensor


@pytest.mark.parametrize("raw", [True, False], ids=["bytes", "numbers"])
@pytest.mark.parametrize("number", CASES)
def test_elements_below_32_bits(number: int, raw: bool) -> None:
    for count in (1, 3, 4, 8):
        found = to_array(_tensor(number, raw, count)).astype(np.float32)
        np.testing.assert_array_equal(found, np.resize(CASES[number][1], count).astype(np.float32))
