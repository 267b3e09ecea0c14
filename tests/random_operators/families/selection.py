"""Operators that choose, with what decides the shape as constants; n-grams, and determinants."""

from __future__ import annotations

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import Discard


@generator("Compress")
def compress(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 3)
    axis = g.draw.below(len(shape)) if g.draw.of(True, False) else None
    extent = int(np.prod(shape)) if axis is None else shape[axis]
    keep = g.fixed(g.draw.array("bool", (g.draw.between(0, min(extent, 40)),)))
    g.emit([g.data(dtype, shape), keep], **({} if axis is None else {"axis": axis}))
    return EXACT


@generator("Unique")
def unique(g: Graph) -> Tolerance:
    dtype = g.dtype(among=("float32", "int64", "int8", "float64"))
    shape = g.draw.shape(1, 3, extents=(1, 2, 3, 5, 4, 7))
    attributes = {"sorted": g.draw.of(1, 0)}
    if g.draw.of(False, True):
        attributes["axis"] = g.draw.between(-len(shape), len(shape) - 1)
    g.emit([g.fixed(g.draw.integers("int8", shape, -2, 3).astype(dtype))], g.draw.of(4, 1, 2), **attributes)
    return EXACT


@generator("NonMaxSuppression")
def non_max_suppression(g: Graph) -> Tolerance:
    batches, classes, count = g.draw.of(1, 2), g.draw.of(1, 2), g.draw.of(3, 1, 7, 0)
    corner = g.draw.integers("int64", (batches, count, 2), 0, 6)
    size = g.draw.integers("int64", (batches, count, 2), 1, 5)
    by_centre = g.draw.of(0, 1)
    boxes = np.concatenate([corner, size if by_centre else corner + size], -1).astype("float32")
    scores = np.array([g.draw.order(count) for _ in range(batches * classes)], "float32")  # no two alike
    inputs = [g.fixed(boxes), g.fixed(scores.reshape(batches, classes, count))]
    inputs += [g.ints(g.draw.of(2, 1, 0, 9)), g.fixed(np.array([g.draw.of(0.5, 0.0, 0.25)], "float32"))]
    if g.draw.of(False, True):
        inputs.append(g.fixed(np.array([1.5], "float32")))
    g.emit(inputs, center_point_box=by_centre)
    return EXACT


@generator("TfIdfVectorizer")
def tf_idf(g: Graph) -> Tolerance:
    singles, pairs = g.draw.of(2, 0, 3), g.draw.of(2, 1, 3)
    pool = [*range(singles), *g.draw.integers("int64", (2 * pairs,), 0, 4).tolist()]
    if len({tuple(pool[i : i + 2]) for i in range(singles, len(pool), 2)}) < pairs:
        raise Discard
    shortest = g.draw.of(1, 2) if singles else 2
    places = g.draw.order(singles + pairs)
    attributes = {"max_gram_length": 2, "min_gram_length": shortest, "max_skip_count": g.draw.of(0, 1, 5)}
    if g.draw.of(False, True):
        attributes["weights"] = [0.5 * (i + 1) for i in range(len(places))]
    shape = g.draw.of((7,), (1,), (2, 5), (3, 1))
    data = g.draw.integers(g.dtype(among=("int64", "int32")), shape, 0, 4)
    mode = g.draw.of("TF", "IDF", "TFIDF")
    g.emit([g.input(data)], mode=mode, ngram_counts=[0, singles], ngram_indexes=places, pool_int64s=pool, **attributes)
    return EXACT


@generator("Det")
def det(g: Graph) -> Tolerance:
    dtype, size = g.dtype(among=("float32", "float64")), g.draw.of(1, 2, 3, 5)
    batch = g.draw.shape(0, 2, extents=(1, 2, 3, 0))
    whole = g.draw.integers("int64", (*batch, size, size), -3, 4).astype(dtype)
    g.emit([g.input(whole)])
    return Tolerance("close", 512)
