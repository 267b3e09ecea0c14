"""Kernels of integers in plain C: scaling and convolutions, equal to their definition to the bit."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.micro.test_boards import board_here

import tilewright as tvm
from tilewright import relay
from tilewright.micro import BundleExample, export_bundle
from tilewright.relay.interpreter import interpret
from tilewright.topi.micro import fixed_point, offset
from tilewright.topi.micro import integer_conv2d as kernels

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]
HERE = Path(kernels.__code__.co_filename).parent
HEAD = "#include <stdint.h>\n#include <string.h>\n#define TW_INLINE static inline\n#define TW_MESSAGE static\n"
LOOP = """
void scale(const int32_t* sums, int32_t* out, int32_t n, int32_t multiplier, uint32_t factor, int32_t shift,
           int32_t offset) {
  for (int32_t i = 0; i < n; i++) out[i] = tw_scaled(sums[i], multiplier, factor, shift, offset);
}
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Array, np.float32, int], Array]:
    """``tw_scaled`` of sums by a factor."""
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "scale.c").write_text(HEAD + (HERE / "scaling.c").read_text() + LOOP)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "scale.c", "-o", "scale.so"], cwd=folder, check=True)
    function = ctypes.CDLL(str(folder / "scale.so")).scale

    def run(sums: Array, factor: np.float32, largest: int) -> Array:
        point = fixed_point(np.array([factor], np.float32), largest)
        assert point is not None
        out = np.zeros_like(sums)
        bits = int(np.array(factor, np.float32).view(np.uint32))
        pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (sums, out))
        numbers = (len(sums), int(point.multipliers[0]), bits, point.shift, offset(0))
        function(*pointers, numbers[0], numbers[1], ctypes.c_uint32(numbers[2]), *numbers[3:])
        return out

    return run


def as_floats(sums: Array, factor: np.float32) -> Array:
    return np.rint(sums.astype(np.float32) * np.float32(factor))


def next_to_halves(factor: np.float32, largest: int) -> Array:
    """Sums whose products are nearest to halves, and their neighbours."""
    steps = np.arange(-300, 300) + 0.5
    near = np.rint(steps / np.float64(factor))
    found = np.concatenate([near - 1, near, near + 1])
    return found[np.abs(found) <= largest].astype(np.int32)


@pytest.mark.parametrize("factor", [1e-9, 3.1e-5, 1 / 4096, 0.000731, 0.0099, 0.125, 0.3, 0.5, 0.75, 1.0, 1.7, 12.25])
@pytest.mark.parametrize("largest", [300, 2**14 + 3, 2**21 - 1, 2**24 + 77, 2**30])
def test_scaling_rounds_as_floats_do(scale: Any, factor: float, largest: int) -> None:
    if fixed_point(np.array([factor], np.float32), largest) is None:
        assert factor * largest >= 2**19
        return
    random = RNG.integers(-largest, largest + 1, 20000).astype(np.int32)
    sums = np.concatenate([random, next_to_halves(np.float32(factor), largest), np.int32([0, largest, -largest])])
    found, wanted = scale(sums, np.float32(factor), largest), as_floats(sums, np.float32(factor))
    assert np.array_equal(np.clip(found, -512, 512), np.clip(wanted, -512, 512))


def test_scaling_by_many_factors(scale: Any) -> None:
    for factor in np.exp(RNG.uniform(np.log(1e-6), 0, 300)).astype(np.float32):
        largest = int(min(2**29, 2**10 / factor + 1000))
        sums = np.concatenate([next_to_halves(factor, largest), RNG.integers(-largest, largest, 500).astype(np.int32)])
        found, wanted = scale(sums, factor, largest), as_floats(sums, factor)
        assert np.array_equal(np.clip(found, -512, 512), np.clip(wanted, -512, 512)), factor


def test_factors_that_fixed_point_does_not_have_are_refused() -> None:
    assert fixed_point(np.float32([0.0]), 100) is None
    assert fixed_point(np.float32([-0.5]), 100) is None
    assert fixed_point(np.float32([1e-40]), 100) is None
    assert fixed_point(np.float32([0.5]), 2**31) is None
    assert fixed_point(np.float32([]), 100) is None


def layer(
    data: tuple[int, ...], channels: int, kernel: tuple[int, int], dtype: str = "int8", name: str = "x", **attrs: Any
) -> tuple[relay.Function, Array]:
    """A function of one convolution, and data."""
    groups = attrs.get("groups", 1)
    weight = RNG.integers(-128, 128, (channels, data[1] // groups, *kernel)).astype(np.int8)
    size = weight[0].size
    factors = RNG.uniform(0.2, 2, channels).astype(np.float32) / np.float32(100 * np.sqrt(size))
    point = fixed_point(factors, 255 * 128 * size + 2000)
    assert point is not None
    rows = np.stack([RNG.integers(-2000, 2000, channels), point.multipliers, factors.view(np.int32)], axis=1)
    x = relay.var(name, shape=data, dtype=dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    given = {"zero": int(RNG.integers(least, most)), "out_zero": int(RNG.integers(least, most)), "low": least}
    given |= {"high": most, "shift": point.shift, "out_dtype": dtype, **attrs}
    body = relay.nn.contrib_integer_conv2d(x, relay.const(weight), relay.const(rows.astype(np.int32)), **given)
    return relay.Function([x], body), RNG.integers(least, most + 1, data).astype(dtype)


CASES = {
    "windows": ((1, 5, 7, 9), 6, (3, 3), {"padding": (1, 1)}),
    "odd channels of uint8": ((2, 3, 6, 5), 7, (3, 2), {"padding": (2, 1, 0, 1), "dtype": "uint8"}),
    "strides": ((1, 4, 11, 8), 5, (3, 3), {"strides": (2, 3), "padding": (1, 1, 0, 2)}),
    "dilation": ((1, 3, 9, 9), 4, (3, 3), {"dilation": (2, 2), "padding": (2, 2)}),
    "rows far apart": ((1, 3, 9, 7), 4, (2, 3), {"dilation": (3, 1)}),
    "pixels": ((2, 13, 3, 5), 9, (1, 1), {}),
    "pixels of strides": ((1, 8, 5, 5), 4, (1, 1), {"strides": (2, 2)}),
    "groups": ((1, 6, 5, 6), 9, (3, 3), {"groups": 3, "padding": (1, 1)}),
    "depthwise": ((2, 9, 6, 7), 9, (3, 3), {"groups": 9, "padding": (1, 1), "low": 3, "high": 90}),
    "depthwise of uint8": ((1, 4, 9, 6), 4, (5, 3), {"groups": 4, "strides": (2, 1), "dtype": "uint8"}),
    "depthwise, far apart": ((1, 5, 9, 9), 5, (3, 3), {"groups": 5, "dilation": (2, 3), "padding": (2, 0)}),
    "two results of each channel": ((1, 4, 5, 5), 8, (3, 3), {"groups": 4, "padding": (1, 1)}),
    "one number": ((1, 1, 1, 1), 1, (1, 1), {}),
    "padding alone": ((1, 2, 1, 1), 3, (2, 2), {"padding": (2, 2)}),
    "no image": ((0, 2, 4, 4), 3, (2, 2), {}),
}


def compiled(func: relay.Function, value: Array, target: str, opt_level: int = 3) -> Array:
    with tvm.transform.PassContext(opt_level=opt_level):
        factory = relay.build(tvm.IRModule.from_expr(func), target, executor="aot")
    executor = factory.create_executor(tvm.cpu())
    executor.run(x=value)
    result: Array = executor.get_output(0).numpy()
    return result


@pytest.mark.parametrize("case", CASES)
def test_convolutions_in_c_follow_the_definition(case: str) -> None:
    shape, channels, kernel, attrs = CASES[case]
    func, value = layer(shape, channels, kernel, **attrs)
    wanted = np.asarray(interpret(tvm.IRModule.from_expr(func), {"x": value}))
    assert np.array_equal(compiled(func, value, "c -runtime=c"), wanted)


@pytest.mark.parametrize("case", ["windows", "groups", "depthwise of uint8"])
def test_targets_without_the_kernels_take_loops(case: str) -> None:
    shape, channels, kernel, attrs = CASES[case]
    func, value = layer(shape, channels, kernel, **attrs)
    wanted = np.asarray(interpret(tvm.IRModule.from_expr(func), {"x": value}))
    assert np.array_equal(compiled(func, value, "llvm"), wanted)
    assert np.array_equal(compiled(func, value, "c -runtime=c", opt_level=1), wanted)


@pytest.mark.parametrize("board", ["mps3_an547", "mps2_an386"])
def test_vectors_and_pairs_of_bytes_follow_the_definition(tmp_path: Path, board: str) -> None:
    """Helium on Cortex-M55, SMLAD on Cortex-M4: all cases in one program, which qemu runs."""
    target = board_here(board).target
    made = [
        layer(*CASES[case][:3], name=f"x{i}", **CASES[case][3]) for i, case in enumerate(CASES) if case != "no image"
    ]
    func = relay.Function([f.params[0] for f, _ in made], relay.Tuple([f.body for f, _ in made]))
    values = {f"x{i}": value for i, (_, value) in enumerate(made)}
    mod = tvm.IRModule.from_expr(func)
    wanted = [np.asarray(v) for v in interpret(mod, values)]
    export_bundle(relay.build(mod, target, mod_name="net"), tmp_path, "net", BundleExample(values, wanted))
    command = ["make", "-s", "CFLAGS=-O2 -Wall -Wextra -Werror", "test"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "as recorded" in done.stdout, done.stdout + done.stderr
