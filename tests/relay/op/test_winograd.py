"""Winograd's operators, and where AlterOpLayout puts them, against torch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.relay.op.harness import case, check_kernels, check_meaning, check_type, random

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.relay.op.transform.layout import transform_array
from tilewright.relay.type_infer import infer_expr
from tilewright.topi.nn.winograd import transform_weight

WINOGRAD = "nn.contrib_conv2d_winograd_NCHWc_without_weight_transform"
WEIGHT_TRANSFORM = "nn.contrib_conv2d_winograd_weight_transform"
DATA, WEIGHT = random(2, 16, 7, 10), random(24, 16, 3, 3, seed=1)
PACKED_WEIGHT = transform_array(WEIGHT, "OIHW", "OIHW8i8o")
RESULT = F.conv2d(torch.tensor(DATA), torch.tensor(WEIGHT), padding=1).numpy()

DILATED = F.conv2d(torch.tensor(DATA), torch.tensor(WEIGHT), padding=(3, 2), dilation=(3, 2)).numpy()


def convolution(tile_size: int) -> Any:
    return lambda a, b: relay.nn.contrib_conv2d_winograd_nchwc_without_weight_transform(
        a, b, tile_size, padding=(1, 1), channels=24
    )


def windowed(tile_size: int, window: tuple[int, int]) -> Any:
    return lambda a, b: relay.nn.contrib_conv2d_winograd_nchwc_without_weight_transform(
        a, b, tile_size, padding=(1, 3), channels=24, kernel_size=window
    )


def grouped(a: Any, b: Any) -> Any:
    return relay.nn.contrib_conv2d_winograd_nchwc_without_weight_transform(
        a, b, 4, padding=(1, 3), channels=48, groups=2
    )


def weights_of(window: tuple[int, int], groups: int = 1) -> np.ndarray:
    return random(24 * groups, 16 // groups, *window, seed=2)


def packed(window: tuple[int, int], groups: int = 1) -> np.ndarray:
    """Weights for any window, in the layout of PACKED_WEIGHT."""
    return np.asarray(transform_array(weights_of(window, groups), "OIHW", "OIHW8i8o"))


def convolved(window: tuple[int, int], groups: int = 1) -> np.ndarray:
    weight = weights_of(window, groups)
    return np.asarray(F.conv2d(torch.tensor(DATA), torch.tensor(weight), padding=(1, 3), groups=groups).numpy())


def dilated(tile_size: int) -> Any:
    return lambda a, b: relay.nn.contrib_conv2d_winograd_nchwc_without_weight_transform(
        a, b, tile_size, padding=(3, 2), dilation=(3, 2), channels=24
    )


def transform(tile_size: int) -> Any:
    return lambda a: relay.nn.contrib_conv2d_winograd_weight_transform(a, tile_size)


CASES = [
    *(
        case(
            f"winograd {m}",
            convolution(m),
            [transform_array(DATA, "NCHW", "NCHW8c"), transform_weight(PACKED_WEIGHT, m)],
            transform_array(RESULT, "NCHW", "NCHW8c"),
            rtol=0,
            atol=(5e-4 if m == 6 else 5e-5) * np.abs(RESULT).max(),
        )
        for m in (2, 4, 6)
    ),
    case(
        "winograd 2, dilated",
        dilated(2),
        [transform_array(DATA, "NCHW", "NCHW8c"), transform_weight(PACKED_WEIGHT, 2)],
        transform_array(DILATED, "NCHW", "NCHW8c"),
        rtol=0,
        atol=5e-5 * np.abs(DILATED).max(),
    ),
    *(
        case(
            f"winograd {m}, window {window}",
            windowed(m, window),
            [transform_array(DATA, "NCHW", "NCHW8c"), transform_weight(packed(window), m)],
            transform_array(convolved(window), "NCHW", "NCHW8c"),
            rtol=0,
            atol=(5e-4 if m == 6 else 5e-5) * np.abs(convolved(window)).max(),
        )
        for m, window in [(4, (1, 7)), (2, (7, 1)), (4, (5, 5)), (6, (3, 2))]
    ),
    case(
        "winograd 4, groups",
        grouped,
        [transform_array(DATA, "NCHW", "NCHW8c"), transform_weight(packed((3, 3), 2), 4)],
        transform_array(convolved((3, 3), 2), "NCHW", "NCHW8c"),
        rtol=0,
        atol=5e-5 * np.abs(convolved((3, 3), 2)).max(),
    ),
    case("weights of a row", transform(4), [packed((1, 7))], transform_weight(packed((1, 7)), 4)),
    *(case(f"weights {m}", transform(m), [WEIGHT], transform_weight(WEIGHT, m)) for m in (2, 4, 6)),
    case("packed weights", transform(4), [PACKED_WEIGHT], transform_weight(PACKED_WEIGHT, 4)),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Any) -> None:
    check_type(item)
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


@pytest.mark.parametrize("shape", [(3, 6, 6, 1, 8, 8), (3, 4, 4, 2, 8, 8), (3, 6, 6, 2, 8)])
def test_weights_that_do_not_fit_are_named(shape: tuple) -> None:
    data = relay.var("x", shape=(2, 2, 7, 10, 8))
    with pytest.raises(TypeInferenceError, match=r"\(2, 2, 7, 10, 8\).*do not fit for tile_size 4"):
        infer_expr(convolution(4)(data, relay.var("w", shape=shape)))


@pytest.mark.parametrize(("shape", "tile_size"), [((4, 4, 1, 1), 4), ((4, 4), 4), ((4, 4, 3, 3), 3)])
def test_weights_without_windows_and_other_tiles_are_refused(shape: tuple, tile_size: int) -> None:
    with pytest.raises(TypeInferenceError, match=r"\(O, I, kh, kw, ...\)"):
        infer_expr(transform(tile_size)(relay.var("w", shape=shape)))


def residual_block(channels: int, extent: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Two convolutions with bias, residual and ReLU: the function, an input, and torch's result."""
    x = random(1, channels, extent, extent)
    weights = [random(channels, channels, 3, 3, seed=k) / np.float32(channels) for k in (1, 2)]
    biases = [random(channels, seed=k) for k in (3, 4)]
    data = relay.var("x", shape=x.shape)

    def layer(value: Any, k: int) -> Any:
        out = relay.nn.conv2d(value, relay.const(weights[k]), padding=1, channels=channels, kernel_size=3)
        return relay.nn.bias_add(out, relay.const(biases[k]))

    func = relay.Function([data], relay.nn.relu(relay.add(layer(relay.nn.relu(layer(data, 0)), 1), data)))
    t = torch.tensor(x, dtype=torch.float64)
    first, second = (torch.tensor(w, dtype=torch.float64) for w in weights)
    mean = [torch.tensor(b, dtype=torch.float64) for b in biases]
    inner = F.relu(F.conv2d(t, first, mean[0], padding=1))
    return func, x, F.relu(F.conv2d(inner, second, mean[1], padding=1) + t).numpy()


def optimized(func: Any, level: str | None, **options: bool) -> list[Any]:
    """The calls of convolutions after the graph passes."""
    config: dict[str, Any] = {f"relay.graph.{name}": value for name, value in options.items()}
    if level is not None:
        config["relay.conv2d.winograd"] = level
    with tvm.transform.PassContext(opt_level=3, config=config):
        mod = relay.optimize(tvm.IRModule.from_expr(func), "llvm -mcpu=core-avx2", fuse=False)[0]
    calls: list[Any] = []
    relay.analysis.post_order_visit(mod["main"], lambda e: calls.append(e) if isinstance(e, relay.Call) else None)
    return [c for c in calls if "conv2d" in c.op.name and c.op.name != WEIGHT_TRANSFORM]


@pytest.mark.parametrize(("level", "tiles"), [("off", []), ("2", [2, 2]), ("4", [4, 4]), (None, [4, 4])])
def test_the_option_bounds_the_tiles(level: str | None, tiles: Sequence[int]) -> None:
    found = optimized(residual_block(64, 28)[0], level)
    assert [c.attrs.tile_size for c in found if c.op.name == WINOGRAD] == tiles
    assert len(found) == 2


@pytest.mark.parametrize("options", [{}, {"run_once": False}, {"storage_offset": False}])
def test_weights_are_transformed_when_the_library_is_loaded_unless_told_otherwise(options: dict) -> None:
    for call in optimized(residual_block(64, 28)[0], "4", **options):
        weight = call.args[1]
        if not options:
            assert weight.op.name == WEIGHT_TRANSFORM
            (weight,) = weight.args
        assert isinstance(weight, relay.Constant)


@pytest.mark.parametrize("dilation", [2, 4])
def test_dilated_convolutions_are_those_of_grids(dilation: int) -> None:
    x, weight = random(1, 64, 26, 27), random(64, 64, 3, 3, seed=1)
    data = relay.var("x", shape=x.shape)
    options = {"padding": dilation, "dilation": dilation}
    func = relay.Function([data], relay.nn.conv2d(data, relay.const(weight), channels=64, kernel_size=3, **options))
    assert [c.op.name for c in optimized(func, "4")] == [WINOGRAD]
    lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    want = F.conv2d(torch.tensor(x, dtype=torch.float64), torch.tensor(weight, dtype=torch.float64), **options).numpy()
    assert np.abs(module.get_output(0).numpy() - want).max() <= 2e-5 * np.abs(want).max()


def test_groups_of_whole_vectors() -> None:
    x, weight = random(1, 80, 14, 14), random(80, 16, 3, 3, seed=1)
    data = relay.var("x", shape=x.shape)
    body = relay.nn.conv2d(data, relay.const(weight), channels=80, kernel_size=3, padding=1, groups=5)
    assert [c.op.name for c in optimized(relay.Function([data], body), "4")] == [WINOGRAD]
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([data], body)), "llvm -mcpu=core-avx2")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    want = F.conv2d(torch.tensor(x, dtype=torch.float64), torch.tensor(weight).double(), padding=1, groups=5).numpy()
    assert np.abs(module.get_output(0).numpy() - want).max() <= 2e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    ("window", "level", "algorithm"),
    [((1, 7), "4", "F(1x3)"), ((7, 1), "4", "F(3x1)"), ((5, 5), "4", "F(4x4)"), ((3, 3), "2", "F(2x2)")],
)
def test_other_windows_are_cut_into_groups_of_taps(window: tuple[int, int], level: str, algorithm: str) -> None:
    x, weight = random(1, 128, 17, 17), random(128, 128, *window, seed=1)
    data, padding = relay.var("x", shape=x.shape), (window[0] // 2, window[1] // 2)
    body = relay.nn.conv2d(data, relay.const(weight), channels=128, kernel_size=window, padding=padding)
    with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": level}):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([data], body)), "llvm -mcpu=core-avx2")
    assert lib.build_report.convolutions == {f"Winograd {algorithm}": 1}
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    exact = [torch.tensor(a, dtype=torch.float64) for a in (x, weight)]
    want = F.conv2d(exact[0], exact[1], padding=padding).numpy()
    assert np.abs(module.get_output(0).numpy() - want).max() <= 2e-5 * np.abs(want).max()


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(TilewrightError, match=r"relay\.conv2d\.winograd takes 'off', '2', '4', '6', got '8'"):
        optimized(residual_block(16, 8)[0], "8")


@pytest.mark.parametrize(
    ("kernel", "options"),
    [(3, {"strides": 2}), (3, {"strides": 2, "dilation": 2}), (3, {"groups": 32}), (1, {})],
)
def test_other_convolutions_stay_direct(kernel: int, options: dict) -> None:
    weight = relay.const(random(64, 64 // options.get("groups", 1), kernel, kernel))
    x = relay.var("x", shape=(1, 64, 28, 28))
    func = relay.Function([x], relay.nn.conv2d(x, weight, padding=1, channels=64, kernel_size=kernel, **options))
    assert [c.op.name for c in optimized(func, "4")] == ["nn.contrib_conv2d_NCHWc"]


def test_weights_that_are_no_constants_stay_direct() -> None:
    x, w = relay.var("x", shape=(1, 64, 28, 28)), relay.var("w", shape=(64, 64, 3, 3))
    func = relay.Function([x, w], relay.nn.conv2d(x, w, padding=1, channels=64, kernel_size=3))
    assert [c.op.name for c in optimized(func, "4")] == ["nn.contrib_conv2d_NCHWc"]


@pytest.mark.parametrize("level", ["off", "2", "4"])
def test_a_residual_block_agrees_with_torch(level: str) -> None:
    func, x, want = residual_block(64, 27)
    with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": level}):
        lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.set_input("x", x)
    module.run()
    assert np.abs(module.get_output(0).numpy() - want).max() < 1e-5 * np.abs(want).max()


def test_operations_are_counted_as_of_the_convolution() -> None:
    data = relay.var("x", shape=(2, 2, 7, 10, 8))
    call = infer_expr(convolution(4)(data, relay.var("w", shape=(3, 6, 6, 2, 8, 8))))
    assert relay.analysis.get_total_mac_number(call) == 9 * 16 * RESULT.size
