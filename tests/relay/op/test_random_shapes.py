"""Random arguments: the inferred type is that of the value, and the value is numpy's or torch's."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.relay.op.harness import case, check_meaning, check_type, random

from tilewright import relay

few = settings(max_examples=60, deadline=None)
extents = st.integers(0, 5)
shapes = st.lists(extents, min_size=1, max_size=4).map(tuple)


def check(build: Any, inputs: list, expected: Any) -> None:
    item = case("random", build, inputs, expected, rtol=1e-4, atol=1e-4)
    check_type(item)
    check_meaning(item)


@few
@given(shapes, st.data())
def test_broadcasting(shape: tuple, data: st.DataObject) -> None:
    def degraded() -> tuple:
        ones = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        cut = data.draw(st.integers(0, len(shape)))
        return tuple(1 if one else d for d, one in zip(shape, ones, strict=True))[cut:]

    x, y = random(*degraded()), random(*degraded(), seed=1)
    check(relay.add, [x, y], x + y)


@few
@given(shapes, st.data())
def test_strided_slice(shape: tuple, data: st.DataObject) -> None:
    bounds = st.integers(-7, 7)
    begin = [data.draw(bounds) for _ in shape]
    end = [data.draw(bounds) for _ in shape]
    strides = [data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3])) for _ in shape]
    x = random(*shape)
    expected = x[tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides, strict=True))]
    check(lambda a: relay.strided_slice(a, begin, end, strides), [x], expected)


@few
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), st.data())
def test_reductions(shape: tuple, data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    signed = [a - len(shape) if data.draw(st.booleans()) else a for a in axes]
    keep, exclude = data.draw(st.booleans()), data.draw(st.booleans())
    reduced = tuple(a for a in range(len(shape)) if (a in axes) != exclude)
    x = random(*shape)
    expected = x.max(reduced, keepdims=keep) if reduced else x
    check(lambda a: relay.max(a, signed, keep, exclude), [x], expected)


@few
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), st.data())
def test_concatenate_undoes_split(shape: tuple, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis]), min_size=1, max_size=3)))
    x = random(*shape)
    check(lambda a: relay.split(a, cuts, axis), [x], tuple(np.split(x, cuts, axis)))
    check(lambda a: relay.concatenate(relay.split(a, cuts, axis), axis), [x], x)


@few
@given(st.permutations([0, 1, 2, 3]), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_transpose_then_reshape(order: list, shape: list) -> None:
    x = random(*shape)
    check(
        lambda a: relay.reshape(relay.transpose(a, order), (-1, 0)),
        [x],
        x.transpose(order).reshape(-1, shape[order[1]]),
    )


window = st.tuples(st.integers(1, 3), st.integers(1, 3))


@few
@given(window, window, window, window, st.sampled_from([(1, 2, 3), (2, 4, 2), (4, 4, 8), (3, 6, 3)]))
def test_convolutions(kernel: tuple, strides: tuple, padding: tuple, dilation: tuple, channels: tuple) -> None:
    groups, inputs, outputs = channels if channels[1] % channels[0] == channels[2] % channels[0] == 0 else (1, 2, 3)
    x, w = random(1, inputs, 7, 8), random(outputs, inputs // groups, *kernel, seed=1)
    options = {"padding": padding, "dilation": dilation, "groups": groups}
    expected = F.conv2d(torch.from_numpy(x), torch.from_numpy(w), stride=strides, **options).numpy()
    check(lambda a, b: relay.nn.conv2d(a, b, strides=strides, **options), [x, w], expected)


@few
@given(window, window, st.booleans())
def test_pooling(size: tuple, strides: tuple, include: bool) -> None:
    x = random(1, 2, 6, 7)
    pads = tuple(k // 2 for k in size)
    largest = F.max_pool2d(torch.from_numpy(x), size, strides, pads).numpy()
    mean = F.avg_pool2d(torch.from_numpy(x), size, strides, pads, count_include_pad=include).numpy()
    check(lambda a: relay.nn.max_pool2d(a, size, strides, padding=pads), [x], largest)
    check(lambda a: relay.nn.avg_pool2d(a, size, strides, padding=pads, count_include_pad=include), [x], mean)


@few
@given(window, window, st.integers(0, 1), st.integers(0, 1), st.sampled_from([(1, 2, 3), (2, 4, 2)]))
def test_transposed_convolutions(kernel: tuple, strides: tuple, padding: int, extra: int, channels: tuple) -> None:
    groups, inputs, outputs = channels
    extra = min(extra, min(strides) - 1)
    x, w = random(1, inputs, 4, 5), random(inputs, outputs // groups, *kernel, seed=1)
    pads = min(padding, min(kernel) - 1)
    expected = F.conv_transpose2d(torch.from_numpy(x), torch.from_numpy(w), None, strides, pads, extra, groups).numpy()
    check(
        lambda a, b: relay.nn.conv2d_transpose(
            a, b, strides, pads, groups=groups, kernel_layout="IOHW", output_padding=(extra, extra)
        ),
        [x, w],
        expected,
    )
