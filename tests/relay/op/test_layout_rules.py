"""Programs keep their meaning when AlterOpLayout and ConvertLayout carry layouts through them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.relay.op.harness import evaluate, random

import tilewright as tvm
from tilewright import relay
from tilewright.relay.type_infer import infer_expr

X = random(1, 16, 8, 8)
W1, W2, W3 = random(16, 16, 3, 3, seed=1), random(32, 16, 1, 1, seed=2), random(16, 1, 3, 3, seed=3)
VECTOR, SCALAR = random(16, 1, 1, seed=4), random(seed=5)
PLANE, SMALL = random(8, 8, seed=6), random(1, 1, 1, 1, seed=7)


def const(value: np.ndarray) -> Any:
    return relay.const(value)


def conv(x: Any, weight: np.ndarray = W1, **options: Any) -> Any:
    pads = (1, 1) if weight.shape[-1] == 3 else (0, 0)
    return relay.nn.conv2d(x, const(weight), padding=pads, **options)


def gated(halves: Any) -> Any:
    return relay.multiply(halves[0], relay.sigmoid(halves[1]))


def prelu(x: Any) -> Any:
    return relay.where(relay.less(x, relay.const(np.float32(0))), relay.multiply(x, const(VECTOR)), x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "convolutions": lambda x: conv(relay.nn.relu(conv(x)), W2),
    "depthwise": lambda x: conv(conv(conv(x), W3, groups=16)),
    "residual": lambda x: relay.add(conv(conv(x)), conv(x)),
    "a vector per channel": lambda x: relay.nn.relu(relay.add(conv(x), const(VECTOR))),
    "a vector on the left": lambda x: conv(relay.multiply(const(VECTOR), conv(x))),
    "a scalar": lambda x: conv(relay.multiply(conv(x), const(SCALAR))),
    "all ones": lambda x: conv(relay.multiply(conv(x), const(SMALL))),
    "a plane": lambda x: conv(relay.add(conv(x), const(PLANE))),
    "broadcast over the channels": lambda x: conv(relay.add(conv(x), relay.mean(conv(x), 1, True))),
    "bias_add": lambda x: conv(relay.nn.bias_add(conv(x), const(random(16, seed=8)))),
    "clip and cast": lambda x: conv(relay.cast(relay.cast(relay.clip(conv(x), -2, 2), "float64"), "float32")),
    "max_pool2d": lambda x: conv(relay.nn.max_pool2d(conv(x), (2, 2), (2, 2), padding=(1, 1))),
    "avg_pool2d": lambda x: conv(relay.nn.avg_pool2d(conv(x), (3, 3), padding=(1, 1), count_include_pad=True)),
    "global_avg_pool2d": lambda x: conv(relay.nn.global_avg_pool2d(conv(x)), W2),
    "adaptive_avg_pool2d": lambda x: conv(relay.nn.adaptive_avg_pool2d(conv(x), (3, 3))),
    "batch_norm": lambda x: conv(
        relay.nn.batch_norm(conv(x), *[const(np.abs(random(16, seed=s)) + np.float32(0.1)) for s in range(4)])[0]
    ),
    "pad": lambda x: conv(relay.nn.pad(conv(x), ((0, 0), (0, 0), (1, 2), (3, 0)), 0.5)),
    "pad of channels": lambda x: conv(
        relay.nn.pad(conv(x), ((0, 0), (8, 8), (0, 0), (0, 0)), 0.0), random(4, 32, 1, 1)
    ),
    "concatenate": lambda x: conv(relay.concatenate([conv(x), conv(x, W2)], 1), random(16, 48, 1, 1)),
    "concatenate odd channels": lambda x: relay.concatenate([conv(x), conv(x, random(6, 16, 1, 1))], 1),
    "concatenate along the height": lambda x: conv(relay.concatenate([conv(x), conv(x)], 2)),
    "sum over space": lambda x: relay.sum(conv(x), (2, 3)),
    "mean over channels": lambda x: relay.mean(conv(x), 1),
    "max over channels, kept": lambda x: conv(relay.add(relay.max(conv(x), 1, True), conv(x))),
    "sum over all but channels": lambda x: relay.sum(conv(x), 1, exclude=True),
    "argmax over space": lambda x: relay.argmax(conv(x), (2, 3)),
    "argmax over channels": lambda x: relay.argmax(conv(x), 1, keepdims=True),
    "argmin over all": lambda x: relay.argmin(conv(x)),
    "argmax over height and channels": lambda x: relay.argmax(conv(x), (1, 2)),
    "squeeze": lambda x: relay.squeeze(relay.nn.global_avg_pool2d(conv(x)), [2, 3]),
    "squeeze of all": lambda x: relay.squeeze(relay.nn.global_avg_pool2d(conv(x))),
    "squeeze of the batch": lambda x: relay.expand_dims(relay.squeeze(conv(x), [0]), 0),
    "transpose": lambda x: relay.nn.relu(relay.transpose(conv(x), [0, 2, -1, 1])),
    "transpose, reversed": lambda x: relay.transpose(conv(x)),
    "transpose and back": lambda x: conv(relay.transpose(relay.transpose(conv(x), [0, 3, 1, 2]), [0, 2, 3, 1])),
    "slice_like": lambda x: conv(relay.slice_like(conv(x), relay.nn.max_pool2d(conv(x), (3, 3)), axes=[2, -1])),
    "slice_like of another layout": lambda x: relay.slice_like(conv(x), const(random(1, 4, 3, 3)), axes=[1, 2]),
    "resize2d": lambda x: conv(relay.image.resize2d(conv(x), (5, 11))),
    "strided_slice of space": lambda x: conv(relay.strided_slice(conv(x), [0, 0, 1, 2], [1, 16, 7, 8])),
    "strided_slice of channels": lambda x: conv(relay.strided_slice(conv(x), [0, 3], [1, 9]), random(4, 6, 1, 1)),
    "strided_slice of whole blocks": lambda x: conv(
        relay.add(relay.strided_slice(conv(x), [0, 8], [1, 16]), relay.strided_slice(conv(x), [-8], [16], axes=[1])),
        random(4, 8, 1, 1),
    ),
    "strided_slice of a block and space": lambda x: conv(
        relay.strided_slice(conv(x), [0, 0, 1], [1, 8, 7]), random(4, 8, 1, 1)
    ),
    "strided_slice of every other channel": lambda x: conv(
        relay.strided_slice(conv(x), [0], [16], [2], axes=[1]), random(4, 8, 1, 1)
    ),
    "gated": lambda x: conv(gated(relay.split(conv(x, W2), 2, 1)), W2),
    "split at indices": lambda x: conv(relay.split(conv(x, W2), (8, 24), 1)[1]),
    "split of space": lambda x: conv(relay.split(conv(x), (3, 5), -1)[2]),
    "split beyond the end": lambda x: conv(relay.split(conv(x), (-8, 40), 1)[0], random(4, 8, 1, 1)),
    "split between blocks": lambda x: relay.split(conv(x), (3,), 1)[1],
    "split": lambda x: conv(relay.split(conv(x), 2, 1)[1], random(4, 8, 1, 1)),
    "upsampling": lambda x: conv(relay.nn.upsampling(conv(x), 2, 2)),
    "softmax": lambda x: relay.nn.softmax(conv(x), 1),
    "reshape": lambda x: relay.nn.dense(relay.nn.batch_flatten(conv(x)), const(random(32, 1024))),
    "where": lambda x: relay.where(relay.greater(conv(x), const(SCALAR)), conv(x), x),
    "where with a slope for each channel": lambda x: conv(prelu(conv(x))),
    "where with a scalar": lambda x: conv(relay.where(relay.less(conv(x), const(SCALAR)), const(SCALAR), conv(x))),
    "where with a plane": lambda x: conv(relay.where(const(PLANE > 0), conv(x), relay.multiply(x, const(VECTOR)))),
    "transposed": lambda x: conv(relay.nn.conv2d_transpose(conv(x), const(W1), padding=(1, 1), kernel_layout="IOHW")),
    "groups": lambda x: conv(conv(conv(x), random(16, 8, 3, 3), groups=2)),
}


def run(mod: tvm.IRModule) -> np.ndarray:
    main = mod["main"]
    result: np.ndarray = evaluate(infer_expr(main.body), {main.params[0]: X})
    return result


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["llvm -mcpu=core-avx2", "llvm -mcpu=skylake-avx512", "NHWC", "NCHW4c"])
def test_meaning_is_kept(name: str, how: str) -> None:
    x = relay.var("x", shape=X.shape)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], PROGRAMS[name](x))))
    if how.startswith("llvm"):
        # Winograd's rounding is tested on its own; here only layouts change.
        direct = tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"})
        with tvm.target.Target(how), direct:
            after = relay.transform.AlterOpLayout()(mod)
    else:
        if how == "NCHW4c":
            layouts = {"nn.conv2d": ["NCHW4c", "OIHW4o"]}
            if name in ("depthwise", "concatenate odd channels", "strided_slice of channels", "split", "groups"):
                layouts = {"nn.conv2d": ["NHWC", "OHWI"]}
        else:
            layouts = {"nn.conv2d": [how, "default"], "nn.conv2d_transpose": [how, "default"]}
        with tvm.transform.PassContext(opt_level=3):
            after = relay.transform.ConvertLayout(layouts)(mod)
    after = relay.transform.InferType()(after)
    assert str(after) != str(mod)
    np.testing.assert_allclose(run(after), run(mod), rtol=1e-3, atol=1e-4)


def transforms(name: str, how: str = "llvm -mcpu=core-avx2") -> int:
    """Layout changes of values that are not constant in the altered program."""
    x = relay.var("x", shape=X.shape)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], PROGRAMS[name](x))))
    with tvm.target.Target(how), tvm.transform.PassContext(opt_level=3):
        mod = relay.transform.FoldConstant()(relay.transform.AlterOpLayout()(relay.transform.CanonicalizeOps()(mod)))
    return str(mod).count("layout_transform(")


@pytest.mark.parametrize(
    "name",
    ["convolutions", "depthwise", "residual", "a vector per channel", "a vector on the left", "a scalar", "all ones",
     "bias_add", "clip and cast", "max_pool2d", "avg_pool2d", "global_avg_pool2d", "pad", "concatenate", "groups",
     "strided_slice of space", "strided_slice of whole blocks", "strided_slice of a block and space", "upsampling",
     "where with a slope for each channel", "gated", "split at indices", "split of space"],
)  # fmt: skip
def test_the_packed_layout_is_carried_from_the_first_convolution_to_the_last(name: str) -> None:
    assert transforms(name) <= 2


def rows(x: Any) -> Any:
    """A layout of rank 3, N C W, and the same shape."""
    return relay.image.resize1d(x, (8,), method="linear")


def planes(x: Any) -> Any:
    return relay.nn.max_pool2d(x, (3, 3), padding=(1, 1))


def volumes(x: Any) -> Any:
    return relay.nn.avg_pool3d(x, (3, 3, 3), padding=(1, 1, 1))


RANKS: dict[str, Callable[[Any, int], Any]] = {
    "packed to rank 3": lambda x, axis: rows(relay.mean(conv(x), axis)),
    "and added": lambda x, axis: conv(relay.add(conv(x), rows(relay.max(conv(x), 0)))),
    "both added": lambda x, axis: relay.add(relay.sum(conv(x), axis), rows(relay.sum(x, axis))),
    "5 to 4": lambda x, axis: planes(relay.mean(volumes(relay.expand_dims(x, 2)), axis)),
    "5 to 4 to 5": lambda x, axis: relay.add(
        volumes(relay.stack([x], 0)), planes(relay.sum(volumes(relay.stack([x], 0)), 0))
    ),
    "5 to 3": lambda x, axis: rows(relay.mean(volumes(relay.expand_dims(x, 2)), (axis, 4))),
    "4 to 5": lambda x, axis: volumes(relay.expand_dims(conv(x), axis)),
    "5 to 4 packed": lambda x, axis: conv(relay.min(volumes(relay.stack([x, x], axis)), axis)),
}  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("name", RANKS)
def test_names_of_dimensions_do_not_outlive_a_change_of_rank(name: str, axis: int) -> None:
    """C D H W is N C H W to what reads a sum over the batch."""
    x = relay.var("x", shape=X.shape)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], RANKS[name](x, axis))))
    for how in ("llvm -mcpu=core-avx2", "NHWC"):
        with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}), tvm.target.Target("llvm"):
            convert = relay.transform.ConvertLayout({"nn.conv2d": [how, "default"]})
            after = (convert if how == "NHWC" else relay.transform.AlterOpLayout())(mod)
        np.testing.assert_allclose(run(relay.transform.InferType()(after)), run(mod), rtol=1e-3, atol=1e-4)
