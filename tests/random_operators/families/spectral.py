"""Fourier transforms, and elements that are put to places."""

from __future__ import annotations

import math

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator, onnx_type
from tests.random_operators.draw import Discard

_LENGTHS = (1, 2, 3, 5, 8, 13, 64, 66, 70, 97)


@generator("DFT")
def dft(g: Graph) -> Tolerance:
    dtype = g.draw.of("float32", "float64")
    inverse, onesided = g.draw.of(0, 1), g.draw.of(0, 1)
    if inverse and onesided:  # the reference evaluator takes no half spectra
        onesided = 0
    shape = [g.draw.of(1, 2, 3), g.draw.of(*_LENGTHS), 1 if onesided else g.draw.of(1, 2)]
    if g.draw.chance(3):
        shape.insert(1, g.draw.of(1, 2, 3))
    axis = len(shape) - 2
    inputs = [g.data(dtype, shape, "mild")]
    if g.draw.chance(2):
        inputs.append(g.fixed(np.array(g.draw.of(*_LENGTHS))))
    if g.opset >= 20:
        inputs += [""] * (2 - len(inputs)) + [g.fixed(np.array(axis))]
        g.emit(inputs, inverse=inverse, onesided=onesided)
    else:
        g.emit(inputs, inverse=inverse, onesided=onesided, axis=axis)
    return Tolerance("close", 400)


@generator("STFT")
def stft(g: Graph) -> Tolerance:
    dtype, size = g.draw.of("float32", "float64"), g.draw.of(2, 4, 8, 16)
    length = size + g.draw.of(0, 3, 17)
    signal = g.data(dtype, (g.draw.of(1, 2), length, 1), "mild")
    step = g.fixed(np.array(g.draw.of(1, 2, 5)))
    window = g.data(dtype, (size,), "mild")
    g.emit([signal, step, window, g.fixed(np.array(size))], onesided=g.draw.of(1, 0))
    return Tolerance("close", 400)


@generator("MelWeightMatrix")
def mel_weight_matrix(g: Graph) -> Tolerance:
    rate, length = g.draw.of(8000, 16000), g.draw.of(16, 64, 100)
    whole = [g.draw.of(1, 4, 8), length, rate]
    edges = [float(g.draw.of(0, 20, 100)), float(rate // 2)]
    inputs = [*(g.fixed(np.array(v, "int64")) for v in whole), *(g.fixed(np.array(v, "float32")) for v in edges)]
    g.emit(inputs, output_datatype=onnx_type(g.draw.of("float32", "float64")))
    return Tolerance("rough", 1e-5)


@generator("BitCast")
def bitcast(g: Graph) -> Tolerance:
    sizes = {
        1: ("int8", "uint8"),
        2: ("int16", "uint16", "float16"),
        4: ("float32", "int32", "uint32"),
        8: ("float64", "int64", "uint64"),
    }
    kinds = sizes[g.draw.of(*sizes)]
    g.emit([g.data(g.draw.of(*kinds), g.draw.shape(), "mild")], to=onnx_type(g.draw.of(*kinds)))
    return EXACT


@generator("MaxUnpool")
def max_unpool(g: Graph) -> Tolerance:
    """Values at different places of an image twice as large."""
    batch, channels, rows, columns = (g.draw.of(1, 2, 3) for _ in range(4))
    size = batch * channels * 4 * rows * columns
    count = batch * channels * rows * columns
    places = np.random.default_rng(g.draw.below(1 << 16)).permutation(size)[:count].reshape(batch, channels, rows, -1)
    data = g.data("float32", (batch, channels, rows, columns), "mild")
    g.emit([data, g.input(places.astype("int64"))], kernel_shape=[2, 2], strides=[2, 2])
    return EXACT


@generator("Col2Im")
def col2im(g: Graph) -> Tolerance:
    rank = g.draw.of(1, 2, 3)
    image, block = [g.draw.of(2, 3, 5) for _ in range(rank)], [g.draw.of(1, 2) for _ in range(rank)]
    strides, dilations = ([g.draw.of(1, 2) for _ in range(rank)] for _ in range(2))
    pads = [g.draw.of(0, 1) for _ in range(2 * rank)]
    counts = [
        (image[i] + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    if min(counts) < 1:
        raise Discard
    shape = (g.draw.of(1, 2), g.draw.of(1, 3) * math.prod(block), math.prod(counts))
    inputs = [g.data("float32", shape, "mild"), g.ints(*image), g.ints(*block)]
    g.emit(inputs, strides=strides, dilations=dilations, pads=pads)
    return Tolerance("linear", 40)


@generator("TensorScatter")
def tensor_scatter(g: Graph) -> Tolerance:
    batch, heads, length, width = g.draw.of(1, 2, 3), g.draw.of(1, 2), g.draw.of(3, 4, 7), g.draw.of(1, 5)
    added, circular = g.draw.between(1, length), g.draw.of(False, True)
    dtype = g.draw.of("float32", "float16", "int32")
    inputs = [g.data(dtype, (batch, heads, n, width), "mild") for n in (length, added)]
    starts = [g.draw.between(0, length - 1 if circular else length - added) for _ in range(batch)]
    if g.draw.chance(4):
        starts = []
    inputs += [g.input(np.array(starts, "int64"))] if starts else []
    g.emit(inputs, mode="circular" if circular else "linear", axis=g.draw.of(-2, 2))
    return EXACT
