"""Products of float32 in AMX's tiles of bfloat16: float32's error, FMA's infinities, and where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError
from tilewright.target import features
from tilewright.topi.cpu.float_dense import schedule_dense_of_parts
from tilewright.topi.cpu.model.float_tiles import float_tiles, row_tiles
from tilewright.topi.kinds import DENSE_PARTS
from tilewright.topi.nn import float_parts
from tilewright.topi.options import OPTION

AMX, ANY = "llvm -mcpu=sapphirerapids", "llvm -mcpu=x86-64"
RNG = np.random.default_rng(45)
# Of products with numbers of a standard normal distribution: root mean square, in roots of the sum's length.
ERROR = {3: 1e-6, 2: 3e-5, 1: 1e-2}


def product(x: np.ndarray, weight: np.ndarray, parts: int, most: int, chunk: int, target: str) -> np.ndarray:
    """Return x times the transposed weight by the schedule, by loops that stand for tiles where there are none."""
    (rows, inner), columns = x.shape, weight.shape[0]
    blocks, tiles, height = row_tiles(rows, most)
    with tvm.target.Target(target):
        data = te.placeholder((rows, inner), name="data")
        packed = te.placeholder((-(-columns // 32), inner, 32), name="weight")
        split = float_parts.parts_of_data(data, blocks * tiles, height, parts)
        out = float_parts.dense_of_parts(split, packed, rows, inner, tiles)
        s = te.create_schedule(out.op)
        schedule_dense_of_parts(s, DENSE_PARTS.among([out]), out.op, chunk, emulated=target == ANY)
        kernel: Any = tvm.build(s, [data, packed, out], target)
    padded = np.pad(weight, ((0, -columns % 32), (0, 0)))
    values = np.ascontiguousarray(padded.reshape(-1, 32, inner).transpose(0, 2, 1))
    result = tvm.nd.empty((rows, padded.shape[0]))
    kernel(tvm.nd.array(x), tvm.nd.array(values), result)
    found: np.ndarray = result.numpy()[:, :columns]
    return found


def on(target: str) -> str:
    if not runs_here(target):
        pytest.skip("no AMX on this processor")
    return target


@pytest.mark.parametrize("target", [AMX, ANY])
@pytest.mark.parametrize(
    ("parts", "shape", "most", "chunk"),
    [
        (3, (16, 64, 32), 256, 32),
        (3, (17, 64, 64), 256, 64),
        (3, (31, 70, 33), 256, 33),  # an odd number of numbers in a sum, and columns of padding
        (1, (48, 96, 160), 32, 160),  # two blocks of rows, the second shorter
        (2, (33, 128, 192), 256, 64),  # a sum in chunks
        (3, (101, 64, 97), 32, 97),
    ],
)
def test_errors_are_those_of_the_parts(
    target: str, parts: int, shape: tuple[int, int, int], most: int, chunk: int
) -> None:
    rows, columns, depth = shape
    x, weight = RNG.standard_normal((rows, depth), "float32"), RNG.standard_normal((columns, depth), "float32")
    found = product(x, weight, parts, most, chunk, on(target))
    error = found - x.astype("float64") @ weight.astype("float64").T
    assert np.sqrt(np.mean(error**2)) < ERROR[parts] * np.sqrt(depth)


@pytest.mark.parametrize("depth", [64, 1024])
def test_three_parts_err_no_more_than_fma(depth: int) -> None:
    x, weight = RNG.standard_normal((32, depth), "float32"), RNG.standard_normal((64, depth), "float32")
    exact = x.astype("float64") @ weight.astype("float64").T
    chain = np.zeros_like(exact, "float32")
    for k in range(depth):  # as one rounding of each product and sum: that of FMA
        chain = (chain.astype("float64") + np.multiply.outer(x[:, k], weight[:, k].astype("float64"))).astype("float32")
    error, fma = (np.sqrt(np.mean((v - exact) ** 2)) for v in (product(x, weight, 3, 256, depth, on(AMX)), chain))
    assert error < fma


def test_small_products_of_positive_numbers_are_not_lost() -> None:
    x, weight = RNG.random((32, 768), "float32"), RNG.random((64, 768), "float32")
    exact = x.astype("float64") @ weight.astype("float64").T
    assert np.sqrt(np.mean((product(x, weight, 3, 256, 768, on(AMX)) / exact - 1) ** 2)) < 8e-7


@pytest.mark.parametrize("target", [AMX, ANY])
@pytest.mark.parametrize(("parts", "chunk"), [(1, 64), (2, 32), (3, 64)])
def test_infinities_and_not_a_number_are_those_of_whole_numbers(target: str, parts: int, chunk: int) -> None:
    x, weight = np.ones((32, 64), "float32"), np.ones((64, 64), "float32")
    odd_nan = np.uint32(0x7F800001).view("float32")  # its upper half is an infinity's
    x[0, 1], x[1, 0], x[2, 0], x[3, 3] = np.inf, np.nan, odd_nan, -np.inf
    x[4, 0], x[5, 40] = 3.4e38, -3.4e38  # which round to infinity in bfloat16
    x[4:6, 33] = 0  # against a weight as large
    weight[0, 1], weight[1, 2], weight[2, 5], weight[3, 33] = 0, np.inf, np.nan, -3.4e38
    weight[4, 0], weight[5, 1] = np.uint32(0xFFFFFFFF).view("float32"), -1
    with np.errstate(all="ignore"):
        expected = (x.astype("float64") @ weight.astype("float64").T).astype("float32")
    np.testing.assert_allclose(product(x, weight, parts, 256, chunk, on(target)), expected, rtol=0.01)


@pytest.mark.parametrize("target", [AMX, ANY])
def test_sums_that_overflow_on_the_way_are_computed_one_after_another(target: str) -> None:
    x, weight = np.zeros((16, 32), "float32"), np.zeros((64, 32), "float32")
    x[:, 0], x[:, 1], weight[:, 0], weight[:, 1] = 1.9e19, 1.9e19, 1.78e19, -1.78e19
    np.testing.assert_array_equal(product(x, weight, 3, 256, 32, on(target)), 0)


@pytest.mark.parametrize("target", [AMX, ANY])
def test_numbers_near_zero_err_by_the_least_normal_number(target: str) -> None:
    x = np.full((16, 32), 2.0**-120, "float32") * RNG.standard_normal((16, 32), "float32")
    x[0], x[1], x[2, :16] = 2.0**-130, -0.0, 0.0
    weight = RNG.standard_normal((64, 32), "float32")
    weight[0] = -0.0
    exact = x.astype("float64") @ weight.astype("float64").T
    largest = np.abs(weight).sum(axis=1).max()
    assert np.abs(product(x, weight, 3, 256, 32, on(target)) - exact).max() <= 2.0**-126 * largest


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_parts_add_up_to_the_number(parts: int) -> None:
    values = np.concatenate([RNG.standard_normal(4096, "float32") * 10.0 ** RNG.integers(-30, 38, 4096), [3.4e38, 0]])
    values = values.astype("float32")
    split = float_parts.split(values, parts)
    assert not (split.view("uint32") & 0xFFFF).any()
    rest = np.abs(split.astype("float64").sum(axis=0) - values)
    assert (rest <= np.abs(values) * (0, 2.0**-7, 2.0**-16, 0)[parts]).all()
    odd = float_parts.split(np.float32([np.inf, -np.inf, np.nan]), parts)
    np.testing.assert_array_equal(odd.sum(axis=0), [np.inf, -np.inf, np.nan])


def layer(rows: Any, columns: int, depth: int, target: str, **options: Any) -> Any:
    x = relay.var("x", shape=(rows, depth))
    weight, bias = RNG.standard_normal((columns, depth), "float32"), RNG.standard_normal(columns, "float32")
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, relay.const(weight)), relay.const(bias)))
    with tvm.transform.PassContext(opt_level=3, config=options):
        lib = relay.build(tvm.IRModule.from_expr(body), target)
    return lib, weight, bias


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(128, 256, 256), (197, 250, 160), (300, 1000, 160)])
def test_layers_agree_with_numpy(shape: tuple[int, int, int], threads: int) -> None:
    lib, weight, bias = layer(*shape, f"{on(AMX)} -num-cores={threads}")
    assert "tdpbf16ps" in lib.get_lib().get_source("asm")
    x = RNG.standard_normal((shape[0], shape[2]), "float32")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(x=x)
    expected = np.maximum(x.astype("float64") @ weight.T.astype("float64") + bias, 0)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "shape", "used"),
    [
        (AMX, (128, 256, 256), True),
        (AMX, (8, 768, 768), False),  # reads each weight once: waits for memory
        (AMX, (128, 32, 256), False),
        (AMX, (128, 256, 16), False),
        (f"{AMX} -mattr=-amx-bf16", (128, 256, 256), False),
        (f"{AMX} -mattr=-amx-tile", (128, 256, 256), False),
        ("llvm -mcpu=znver5", (128, 256, 256), False),
    ],
)
def test_where_tiles_are_used(target: str, shape: tuple[int, int, int], used: bool) -> None:
    lib, _, _ = layer(*shape, target)
    assert ("tdpbf16ps" in lib.get_lib().get_source("asm")) == used


def test_source_code_has_loops() -> None:
    lib, _, _ = layer(128, 256, 256, "c")
    assert "tdpbf16ps" not in lib.get_lib().get_source()


def test_named_rows_stay_in_vector_registers() -> None:
    x = relay.var("x", shape=(relay.Any(), 256))
    body = relay.nn.dense(x, relay.const(RNG.standard_normal((256, 256), "float32")))
    program = relay.vm.compile(tvm.IRModule.from_expr(body), AMX)
    assert "tdpbf16ps" not in program.lib.get_source("asm")


@pytest.mark.parametrize(("precision", "products"), [("highest", 6), ("high", 3), ("medium", 1)])
def test_the_option_says_how_many_products_a_step_has(precision: str, products: int) -> None:
    text = layer(256, 256, 256, AMX, **{OPTION: precision})[0].get_lib().get_source("asm")
    assert text.count("tdpbf16ps") % (4 * products) == 0
    with tvm.transform.PassContext(config={OPTION: precision}):
        tiles = float_tiles(features(AMX), 256, 256, 256)
    assert tiles is not None
    assert tiles.is_faster
    assert len(float_parts.PRODUCTS[tiles.parts]) == products


def test_an_unknown_precision_of_products_is_an_error() -> None:
    with pytest.raises(TilewrightError, match="one of highest, high, medium, not 'tf32'"):
        layer(256, 256, 256, AMX, **{OPTION: "tf32"})


def test_python_has_the_option_too() -> None:
    x = relay.var("x", shape=(128, 256))
    weight = RNG.standard_normal((256, 256), "float32")
    mod, data = (
        tvm.IRModule.from_expr(relay.nn.dense(x, relay.const(weight))),
        RNG.standard_normal((128, 256), "float32"),
    )
    exact = data.astype("float64") @ weight.T
    errors = [
        np.abs(tvm.compile(mod, target=on(AMX), matmul_precision=precision)(x=data) - exact).max()
        for precision in ("highest", "high", "medium")
    ]
    assert errors[0] * 4 < errors[1] < errors[2] / 50
