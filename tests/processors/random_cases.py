"""Random calls of heavy operators, with what they should give in float64 by PyTorch or numpy.

A family is a function from a source of random choices to a ``Case``. Weights are constants, so that the graph passes
pack and transform them as in a network; data are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tilewright import relay
from tilewright.relay.op.transform.layout import transform_array
from tilewright.topi.nn.strassen import transform_weight as transform_dense
from tilewright.topi.nn.winograd import transform_weight
from tilewright.topi.nn.winograd_forms import TILE_SIZES

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """``build`` of variables for ``inputs`` should give ``expected``, within ``tolerance`` of its largest value."""

    what: str
    build: Callable[..., Any]
    inputs: Sequence[Array]
    expected: Array
    tolerance: float = 2e-5


class Draw:
    """Random choices from a seed."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``."""
        return int(self.rng.integers(low, high + 1))

    def of(self, *options: Any) -> Any:
        """One of the options."""
        return options[self.between(0, len(options) - 1)]

    def extents(self, count: int, low: int, high: int) -> tuple[int, ...]:
        """Some integers."""
        return tuple(self.between(low, high) for _ in range(count))

    def array(self, *shape: int) -> Array:
        """float32 numbers in [-1, 1)."""
        return self.rng.uniform(-1, 1, shape).astype("float32")

    def channels(self) -> int:
        """Odd numbers, and multiples of vectors."""
        return self.of(1, 3, 5, 7, 8, 12, 16, 20, 24, 32, 40, 48, 64)


def exact(array: Array) -> Tensor:
    """The array in float64."""
    return torch.from_numpy(np.asarray(array, "float64"))


def finish(draw: Draw, channels: int, shape: Sequence[int]) -> tuple[str, list[Array], Any, Any]:
    """What follows a convolution (channels are its second axis) or product: bias and ReLU, a residual, or a gate.

    Gives its name, further inputs, and what it does to an expression and to exact values.
    """
    kind = draw.of("", "bias relu", "residual", "sigmoid")
    rest = (1,) * (len(shape) - 2)
    bias, other = draw.array(channels), draw.array(*shape)
    if kind == "bias relu":
        return (
            kind,
            [],
            lambda e: relay.nn.relu(relay.nn.bias_add(e, relay.const(bias))),
            lambda v: F.relu(v + exact(bias.reshape(-1, *rest))),
        )
    if kind == "residual":
        return kind, [other], lambda e, r: relay.nn.relu(relay.add(e, r)), lambda v: F.relu(v + exact(other))
    if kind == "sigmoid":  # a function, which is not written out for every row of a tile
        return kind, [], lambda e: relay.multiply(e, relay.sigmoid(e)), F.silu
    return kind, [], lambda e: e, lambda v: v


def grouped_channels(draw: Draw) -> tuple[int, int, int]:
    """Groups, input channels and output channels."""
    groups = draw.of(1, 1, 1, 1, 2, 3, 4)
    if groups == 1:
        return 1, draw.channels(), draw.channels()
    return groups, groups * draw.of(1, 3, 8, 16), groups * draw.of(1, 2, 5, 8, 16)


def window(draw: Draw, rank: int) -> dict[str, Any]:
    """Kernel, strides, dilation, padding and an extent of the data in which at least one window fits."""
    kernel, strides = draw.extents(rank, 1, 4), draw.extents(rank, 1, 3)
    dilation = tuple(1 if k == 1 else draw.of(1, 1, 2) for k in kernel)
    before, after = draw.extents(rank, 0, 2), draw.extents(rank, 0, 2)
    largest = {1: 40, 2: 20, 3: 8}[rank]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = tuple(draw.between(max(1, r - b - a), largest) for r, b, a in zip(reach, before, after, strict=True))
    return {"kernel": kernel, "strides": strides, "dilation": dilation, "before": before, "after": after, "size": size}


def padded(x: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """Zeros around the last dimensions."""
    pads = [p for b, a in zip(reversed(before), reversed(after), strict=True) for p in (b, a)]
    return F.pad(x, pads)


CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _convolution(draw: Draw, rank: int, groups: int, inputs: int, outputs: int) -> Case:
    w, batch = window(draw, rank), draw.between(1, 4)
    x, weight = draw.array(batch, inputs, *w["size"]), draw.array(outputs, inputs // groups, *w["kernel"])
    data = padded(exact(x), w["before"], w["after"])
    plain = CONVOLVE[rank](data, exact(weight), None, w["strides"], 0, w["dilation"], groups)
    name, more, tail, exact_tail = finish(draw, outputs, plain.shape)
    operator = getattr(relay.nn, f"conv{rank}d")
    options = {
        "strides": w["strides"], "padding": (*w["before"], *w["after"]), "dilation": w["dilation"],
        "groups": groups, "channels": outputs, "kernel_size": w["kernel"],
    }  # fmt: skip
    return Case(
        f"conv{rank}d {x.shape} {weight.shape} {options} {name}",
        lambda a, *rest: tail(operator(a, relay.const(weight), **options), *rest),
        [x, *more],
        exact_tail(plain).numpy(),
    )


def conv2d(draw: Draw) -> Case:
    return _convolution(draw, 2, *grouped_channels(draw))


def conv1d(draw: Draw) -> Case:
    return _convolution(draw, 1, *grouped_channels(draw))


def conv3d(draw: Draw) -> Case:
    return _convolution(draw, 3, *grouped_channels(draw))


def depthwise(draw: Draw) -> Case:
    channels = draw.channels() + 1
    return _convolution(draw, 2, channels, channels, channels * draw.of(1, 1, 1, 2))


def conv2d_layouts(draw: Draw) -> Case:
    """Other layouts: channels last (plain, grouped, depthwise), batch last, and one that no kernel is for."""
    kind = draw.of("plain", "grouped", "depthwise", "depthwise HWIO", "HWCN", "NCHW HWIO")
    groups, inputs, outputs = grouped_channels(draw) if kind == "grouped" else (1, draw.channels(), draw.channels())
    if "depthwise" in kind:
        groups = inputs = outputs = draw.channels() + 1
    data_layout = {"HWCN": "HWCN", "NCHW HWIO": "NCHW"}.get(kind, "NHWC")
    kernel_layout = "HWOI" if kind == "depthwise" else "HWIO"
    w, batch = window(draw, 2), draw.between(1, 4)
    x, weight = draw.array(batch, inputs, *w["size"]), draw.array(outputs, inputs // groups, *w["kernel"])
    data = padded(exact(x), w["before"], w["after"])
    want = F.relu(F.conv2d(data, exact(weight), None, w["strides"], 0, w["dilation"], groups)).numpy()
    options = {
        "strides": w["strides"], "padding": (*w["before"], *w["after"]), "dilation": w["dilation"], "groups": groups,
        "channels": outputs, "kernel_size": w["kernel"], "data_layout": data_layout, "kernel_layout": kernel_layout,
    }  # fmt: skip
    stored = relay.const(transform_array(weight, "OIHW", kernel_layout))
    return Case(
        f"conv2d {kind} {x.shape} {weight.shape} {options}",
        lambda a: relay.nn.relu(relay.nn.conv2d(a, stored, **options)),
        [transform_array(x, "NCHW", data_layout)],
        transform_array(want, "NCHW", data_layout),
    )


def winograd(draw: Draw) -> Case:
    """A convolution by Winograd's method, whatever the cost model thinks of it."""
    tile, block = draw.of(*TILE_SIZES), draw.of(4, 8, 16)
    inputs, outputs, batch = block * draw.between(1, 3), block * draw.between(1, 4), draw.between(1, 4)
    groups = draw.of(1, 1, draw.between(2, 5))
    window = draw.of((3, 3), (3, 3), (1, 3), (7, 1), (5, 5), (draw.between(2, 8), draw.between(1, 8)))
    size, padding = tuple(extent + draw.between(0, 17) for extent in window), draw.extents(4, 0, 2)
    x, weight = draw.array(batch, groups * inputs, *size), draw.array(groups * outputs, inputs, *window)
    plain = F.conv2d(padded(exact(x), padding[:2], padding[2:]), exact(weight), groups=groups)
    name, more, tail, exact_tail = finish(draw, groups * outputs, plain.shape)
    layout = f"NCHW{block}c"
    packed = relay.const(transform_weight(transform_array(weight, "OIHW", f"OIHW{block}i{block}o"), tile))

    def build(a: Any, *rest: Any) -> Any:
        out = relay.nn.contrib_conv2d_winograd_nchwc_without_weight_transform(
            relay.layout_transform(a, "NCHW", layout), packed, tile, padding=padding, channels=groups * outputs,
            data_layout=layout, kernel_layout=f"OIHW{block}i{block}o", out_layout=layout, kernel_size=window,
            groups=groups,
        )  # fmt: skip
        return tail(relay.layout_transform(out, layout, "NCHW"), *rest)

    what = f"winograd {tile} groups {groups} block {block} {x.shape} {weight.shape} padding {padding} {name}"
    return Case(what, build, [x, *more], exact_tail(plain).numpy(), {2: 2e-5, 4: 1e-4}.get(tile, 1e-3))


def strassen(draw: Draw) -> Case:
    """A dense layer by Strassen's method, whatever the cost model thinks of it."""
    block, chunk = draw.of(4, 8, 16, 24, 32, 48), draw.between(1, 70)
    rows, units = draw.between(1, 150), 2 * block * draw.between(1, 4)
    inner = 2 * chunk * draw.between(1, 4)
    x, weight = draw.array(rows, inner), draw.array(units, inner)
    plain = exact(x) @ exact(weight).T
    name, more, tail, exact_tail = finish(draw, units, plain.shape)
    stored = relay.const(transform_dense(weight, block, chunk))

    def build(a: Any, *rest: Any) -> Any:
        return tail(relay.nn.contrib_dense_strassen_without_weight_transform(a, stored), *rest)

    what = f"strassen block {block} chunk {chunk} {x.shape} {weight.shape} {name}"
    return Case(what, build, [x, *more], exact_tail(plain).numpy(), 2e-5)


def winograd_network(draw: Draw) -> Case:
    """Two convolutions that the graph passes may turn into Winograd ones, the second with a residual."""
    channels, extent, batch = draw.of(16, 24, 32, 64), draw.extents(2, 8, 30), draw.between(1, 2)
    window = draw.of((3, 3), (3, 3), (1, 7), (7, 1), (5, 5), (3, 1), (1, 11))
    padding = window[0] // 2, window[1] // 2
    x = draw.array(batch, channels, *extent)
    first, second = (draw.array(channels, channels, *window) / np.float32(channels) for _ in range(2))
    inner = F.relu(F.conv2d(exact(x), exact(first), padding=padding))
    want = F.relu(F.conv2d(inner, exact(second), padding=padding) + exact(x))

    def build(a: Any) -> Any:
        options = {"padding": padding, "channels": channels, "kernel_size": window}
        hidden = relay.nn.relu(relay.nn.conv2d(a, relay.const(first), **options))
        return relay.nn.relu(relay.add(relay.nn.conv2d(hidden, relay.const(second), **options), a))

    return Case(f"residual block {x.shape} {window}", build, [x], want.numpy(), 1e-4)


def conv2d_transpose(draw: Draw) -> Case:
    groups, inputs, outputs = grouped_channels(draw)
    kernel, strides = draw.extents(2, 1, 4), draw.extents(2, 1, 3)
    padding = tuple(draw.between(0, min(1, k - 1)) for k in kernel)
    extra = tuple(draw.between(0, s - 1) for s in strides)
    x = draw.array(draw.between(1, 4), inputs, *draw.extents(2, 2, 10))
    weight = draw.array(inputs, outputs // groups, *kernel)
    plain = F.conv_transpose2d(exact(x), exact(weight), None, strides, padding, extra, groups)
    name, more, tail, exact_tail = finish(draw, outputs, plain.shape)
    options = {
        "strides": strides, "padding": padding, "output_padding": extra, "groups": groups, "channels": outputs,
        "kernel_size": kernel, "kernel_layout": "IOHW",
    }  # fmt: skip
    return Case(
        f"conv2d_transpose {x.shape} {weight.shape} {options} {name}",
        lambda a, *rest: tail(relay.nn.conv2d_transpose(a, relay.const(weight), **options), *rest),
        [x, *more],
        exact_tail(plain).numpy(),
    )


def dense(draw: Draw) -> Case:
    rows, depth = draw.of(1, 1, 2, 3, 7, 14, 29, 64, 113, 197), draw.of(1, 3, 16, 31, 64, 130, 256, 1536)
    columns = draw.of(1, 10, 16, 24, 33, 64, 96, 100, 128, 256)
    x, weight = draw.array(rows, depth), draw.array(columns, depth)
    plain = exact(x) @ exact(weight).T
    name, more, tail, exact_tail = finish(draw, columns, plain.shape)
    constant = draw.of(True, True, False)

    def build(a: Any, *rest: Any) -> Any:
        w, *others = (relay.const(weight), *rest) if constant else rest
        return tail(relay.nn.dense(a, w), *others)

    what = f"dense {x.shape} {weight.shape} constant={constant} {name}"
    return Case(what, build, [x, *([] if constant else [weight]), *more], exact_tail(plain).numpy())


def matmul(draw: Draw) -> Case:
    m, n, k = draw.of((1, 33, 64), (7, 5, 3), (64, 64, 32), (17, 40, 16), (30, 1, 9))
    left, right = draw.of(False, True), draw.of(False, True)
    a, b = draw.array(*((k, m) if left else (m, k))), draw.array(*((n, k) if right else (k, n)))
    want = (exact(a).T if left else exact(a)) @ (exact(b).T if right else exact(b))
    return Case(
        f"matmul {a.shape} {b.shape} transpose_a={left} transpose_b={right}",
        lambda x, y: relay.nn.relu(relay.nn.matmul(x, y, transpose_a=left, transpose_b=right)),
        [a, b],
        F.relu(want).numpy(),
    )


def batch_matmul(draw: Draw) -> Case:
    batch, (m, n, k) = draw.between(1, 12), draw.of((1, 33, 64), (7, 5, 3), (64, 64, 32), (17, 40, 16), (30, 1, 9))
    left, right = draw.of(False, True), draw.of(False, True)
    a, b = draw.array(batch, *((k, m) if left else (m, k))), draw.array(batch, *((n, k) if right else (k, n)))
    want = (exact(a).transpose(1, 2) if left else exact(a)) @ (exact(b).transpose(1, 2) if right else exact(b))
    return Case(
        f"batch_matmul {a.shape} {b.shape} transpose_a={left} transpose_b={right}",
        lambda x, y: relay.nn.relu(relay.nn.batch_matmul(x, y, transpose_a=left, transpose_b=right)),
        [a, b],
        F.relu(want).numpy(),
    )


def attention(draw: Draw) -> Case:
    """Scaled dot products with a mask, as networks write them out."""
    heads, rows, keys, depth = draw.between(1, 12), draw.of(1, 7, 16, 65), draw.of(1, 9, 32, 130), draw.of(8, 20, 64)
    q, k, v = draw.array(heads, rows, depth), draw.array(heads, keys, depth), draw.array(heads, keys, depth)
    mask = np.where(draw.array(1, 1, keys) > 0.5, np.float32(-1e4), np.float32(0))
    scale, masked = np.float32(depth**-0.5), draw.of(False, True)
    scores = exact(q) @ exact(k).transpose(1, 2) * float(scale) + (exact(mask) if masked else 0)
    want = torch.softmax(scores, -1) @ exact(v)

    def build(a: Any, b: Any, c: Any, *rest: Any) -> Any:
        product = relay.multiply(relay.nn.batch_matmul(a, b), relay.const(scale))
        weights = relay.nn.softmax(relay.add(product, rest[0]) if masked else product, axis=-1)
        return relay.nn.batch_matmul(weights, c, transpose_b=False)

    return Case(f"attention {q.shape} {k.shape} masked={masked}", build, [q, k, v, *([mask] if masked else [])],
                want.numpy())  # fmt: skip


def pool2d(draw: Draw) -> Case:
    kind, layout = draw.of("max", "avg"), draw.of("NCHW", "NCHW", "NHWC")
    size, strides = draw.extents(2, 1, 4), draw.extents(2, 1, 3)
    padding = tuple(k // 2 if draw.of(True, False) else 0 for k in size)
    x = draw.array(draw.between(1, 4), draw.channels(), *draw.extents(2, 4, 20))
    ceil, include = draw.of(False, True), draw.of(False, True)
    for d, k, t, p in zip(x.shape[2:], size, strides, padding, strict=True):
        # PyTorch drops a window that would start in the padding at the end, TVM and Relay do not
        ceil = ceil and -(-(d + 2 * p - k) // t) * t < d + p
    options: dict[str, Any] = {"strides": strides, "padding": padding, "layout": layout, "ceil_mode": ceil}
    if kind == "max":
        want, operator = F.max_pool2d(exact(x), size, strides, padding, 1, ceil), relay.nn.max_pool2d
    else:
        want, operator = F.avg_pool2d(exact(x), size, strides, padding, ceil, include), relay.nn.avg_pool2d
        options["count_include_pad"] = include
    expected = want.numpy()
    if layout == "NHWC":
        x, expected = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), expected.transpose(0, 2, 3, 1)
    return Case(f"{kind}_pool2d {x.shape} {size} {options}", lambda a: operator(a, size, **options), [x], expected)


def global_pool(draw: Draw) -> Case:
    kind, x = draw.of("avg", "max"), draw.array(draw.between(1, 4), draw.channels(), *draw.extents(2, 1, 20))
    positive = F.relu(exact(x))
    want = positive.mean((2, 3), keepdim=True) if kind == "avg" else positive.amax((2, 3), keepdim=True)
    operator = getattr(relay.nn, f"global_{kind}_pool2d")
    return Case(f"global {kind} pool {x.shape}", lambda a: operator(relay.nn.relu(a)), [x], want.numpy())


def softmax(draw: Draw) -> Case:
    shape = (*draw.extents(draw.between(1, 3), 1, 12), draw.of(1, 5, 16, 33, 128, 197, 1000))
    axis, log = draw.between(0, len(shape) - 1), draw.of(False, True)
    x = draw.array(*shape) * 6
    want = torch.log_softmax(exact(x), axis) if log else torch.softmax(exact(x), axis)
    operator = relay.nn.log_softmax if log else relay.nn.softmax
    return Case(f"{'log_' if log else ''}softmax {shape} axis {axis}", lambda a: operator(a, axis), [x], want.numpy())


def layer_norm(draw: Draw) -> Case:
    """As one operator, or written out as exporters do."""
    shape = (*draw.extents(draw.between(1, 2), 1, 20), draw.of(1, 7, 24, 96, 257, 768))
    x, gamma, beta, written = draw.array(*shape), draw.array(shape[-1]), draw.array(shape[-1]), draw.of(True, False)
    want = F.layer_norm(exact(x), shape[-1:], exact(gamma), exact(beta), 1e-5)

    def build(a: Any) -> Any:
        scale, shift = relay.const(gamma), relay.const(beta)
        if not written:
            return relay.nn.layer_norm(a, scale, shift)
        centred = relay.subtract(a, relay.mean(a, -1, keepdims=True))
        variance = relay.mean(relay.multiply(centred, centred), -1, keepdims=True)
        normal = relay.divide(centred, relay.sqrt(relay.add(variance, relay.const(np.float32(1e-5)))))
        return relay.add(relay.multiply(normal, scale), shift)

    return Case(f"layer_norm {shape} written out={written}", build, [x], want.numpy())


def normalize(draw: Draw) -> Case:
    """Batch norm after nothing that takes it, instance norm, group norm, and local response normalization."""
    kind = draw.of("instance", "group", "lrn", "batch")
    channels = draw.of(4, 8, 12, 16)
    x = draw.array(draw.between(1, 4), channels, *draw.extents(2, 2, 12))
    gamma, beta = draw.array(channels), draw.array(channels)
    mean, variance = draw.array(channels), np.abs(draw.array(channels)) + np.float32(0.5)
    scale, shift = relay.const(gamma), relay.const(beta)
    e, g, b = exact(x), exact(gamma), exact(beta)
    builds: dict[str, tuple[Any, Any]] = {
        "instance": (lambda a: relay.nn.instance_norm(a, scale, shift), F.instance_norm(e, None, None, g, b)),
        "group": (lambda a: relay.nn.group_norm(a, scale, shift, 4), F.group_norm(e, 4, g, b)),
        "lrn": (lambda a: relay.nn.lrn(a, 3, 1, 2, 0.1, 0.75), F.local_response_norm(e, 3, 0.1, 0.75, 2)),
        "batch": (
            lambda a: relay.nn.batch_norm(a, scale, shift, relay.const(mean), relay.const(variance))[0],
            F.batch_norm(e, exact(mean), exact(variance), g, b),
        ),
    }
    build, want = builds[kind]
    return Case(f"{kind} norm {x.shape}", build, [x], want.numpy())


def reduce(draw: Draw) -> Case:
    shape = draw.extents(draw.between(1, 4), 1, 20)
    axes = tuple(i for i in range(len(shape)) if draw.of(True, False)) or (draw.between(0, len(shape) - 1),)
    kind, keep = draw.of("sum", "mean", "max", "min", "variance"), draw.of(True, False)
    x = draw.array(*shape)
    functions = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "variance": np.var}
    want = functions[kind](x.astype("float64"), axis=axes, keepdims=keep)
    operator = getattr(relay, kind)
    return Case(f"{kind} {shape} {axes} keep={keep}", lambda a: operator(a, axes, keep), [x], np.asarray(want))


def element_wise(draw: Draw) -> Case:
    """Chains of functions of one operand and broadcast operators, GELU among them."""
    shape = draw.extents(draw.between(1, 4), 1, 24)
    small = tuple(d if draw.of(True, False) else 1 for d in shape)
    x, y = draw.array(*shape) * 3, draw.array(*small)
    kind = draw.of("gelu", "exp", "tanh", "sigmoid", "hard swish")
    e = exact(x) + exact(y)
    wants = {
        "gelu": F.gelu(e), "exp": torch.exp(e), "tanh": torch.tanh(e), "sigmoid": torch.sigmoid(e) * e,
        "hard swish": F.hardswish(e),
    }  # fmt: skip

    def build(a: Any, b: Any) -> Any:
        s = relay.add(a, b)
        number = lambda v: relay.const(np.float32(v))  # noqa: E731
        if kind == "gelu":
            return s * number(0.5) * (relay.erf(s * number(2**-0.5)) + number(1))
        if kind == "hard swish":
            return s * relay.clip(s + number(3), 0.0, 6.0) / number(6)
        return relay.sigmoid(s) * s if kind == "sigmoid" else getattr(relay, kind)(s)

    return Case(f"{kind} {shape} + {small}", build, [x, y], wants[kind].numpy())


def rearrange(draw: Draw) -> Case:
    """Concatenation of what was split and transposed, with work before it."""
    shape, axis = draw.extents(4, 1, 12), draw.between(0, 3)
    x, y = draw.array(*shape), draw.array(*shape)
    order = tuple(int(i) for i in draw.rng.permutation(4))
    cut = draw.between(0, shape[axis])
    parts = np.split(np.maximum(x, 0), [cut], axis)
    parts = [p for p in parts if p.shape[axis]]
    want = np.concatenate([parts[-1], y, parts[0]], axis).transpose(order)

    def build(a: Any, b: Any) -> Any:
        positive = relay.nn.relu(a)
        pieces = list(relay.split(positive, [cut], axis)) if len(parts) == 2 else [positive]
        return relay.transpose(relay.concatenate([pieces[-1], b, pieces[0]], axis), order)

    return Case(f"split {shape} at {cut} of axis {axis}, concatenate, transpose {order}", build, [x, y], want)


FAMILIES: dict[str, Callable[[Draw], Case]] = {
    f.__name__: f
    for f in (
        conv2d, conv1d, conv3d, depthwise, conv2d_layouts, winograd, winograd_network, conv2d_transpose, dense,
        strassen, matmul, batch_matmul, attention, pool2d, global_pool, softmax, layer_norm, normalize, reduce,
        element_wise, rearrange,
    )
}  # fmt: skip
