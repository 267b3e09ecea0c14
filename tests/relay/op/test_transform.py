"""Operators on shapes and layouts against numpy."""

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.op.transform.reshape import resolve_shape
from tilewright.relay.type_infer import infer_expr

X = random(2, 3, 4)
Y = random(2, 5, 4, seed=1)


def packed(x: np.ndarray, block: int) -> np.ndarray:
    """NCHW to NCHW{block}c, with zeros where the channels end."""
    n, c, h, w = x.shape
    chunks = -(-c // block)
    whole = np.zeros((n, chunks * block, h, w), x.dtype)
    whole[:, :c] = x
    return whole.reshape(n, chunks, block, h, w).transpose(0, 1, 3, 4, 2)


IMAGE = random(1, 6, 3, 2)
WEIGHT = random(8, 6, 3, 3)

CASES = [
    case("reshape", lambda x: relay.reshape(x, (4, 6)), [X], X.reshape(4, 6)),
    case("reshape with -1", lambda x: relay.reshape(x, (-1, 4)), [X], X.reshape(6, 4)),
    case("reshape with 0", lambda x: relay.reshape(x, (0, -1)), [X], X.reshape(2, 12)),
    case("reshape with -2", lambda x: relay.reshape(x, (0, -2)), [X], X),
    case("reshape with -3", lambda x: relay.reshape(x, (-3, 0)), [X], X.reshape(6, 4)),
    case("reshape with -4", lambda x: relay.reshape(x, (0, 0, -4, 2, -1)), [X], X.reshape(2, 3, 2, 2)),
    case("reshape to a scalar", lambda x: relay.reshape(x, ()), [random(1, 1)], random(1, 1).reshape(())),
    case(
        "reshape of nothing",
        lambda x: relay.reshape(x, (3, 0), True),
        [np.zeros((0, 2), "float32")],
        np.zeros((3, 0), "float32"),
    ),
    case("reverse_reshape", lambda x: relay.reverse_reshape(x, (-1, 0)), [X], X.reshape(6, 4)),
    case("reverse_reshape with -3", lambda x: relay.reverse_reshape(x, (0, -3)), [X], X.reshape(2, 12)),
    case("reshape_like", relay.reshape_like, [X, random(6, 4)], X.reshape(6, 4)),
    case(
        "reshape_like of a range",
        lambda x, y: relay.reshape_like(x, y, lhs_begin=1, rhs_begin=1),
        [X, random(9, 12)],
        X.reshape(2, 12),
    ),
    case("transpose", relay.transpose, [X], X.transpose()),
    case("transpose by axes", lambda x: relay.transpose(x, (0, -1, 1)), [X], X.transpose(0, 2, 1)),
    case("expand_dims", lambda x: relay.expand_dims(x, 1, 2), [X], X[:, None, None]),
    case("expand_dims at the end", lambda x: relay.expand_dims(x, -1), [X], X[..., None]),
    case("squeeze", relay.squeeze, [random(1, 3, 1)], random(1, 3, 1).reshape(3)),
    case("squeeze an axis", lambda x: relay.squeeze(x, [0]), [random(1, 3, 1)], random(1, 3, 1).reshape(3, 1)),
    case("reverse", lambda x: relay.reverse(x, 1), [X], X[:, ::-1]),
    case(
        "reverse_sequence",
        lambda x, n: relay.reverse_sequence(x, n, 1, 0),
        [random(2, 4), np.array([3, 1], "int64")],
        np.stack([random(2, 4)[0][[2, 1, 0, 3]], random(2, 4)[1]]),
    ),
    case(
        "reverse_sequence of more than there is, of nothing and of less",
        lambda x, n: relay.reverse_sequence(x, n, 1, 0),
        [random(3, 4), np.array([9, 0, -1], "int32")],
        np.stack([random(3, 4)[0][::-1], random(3, 4)[1], random(3, 4)[2]]),
    ),
    case("concatenate", lambda x, y: relay.concatenate([x, y], 1), [X, Y], np.concatenate([X, Y], 1)),
    case(
        "concatenate with nothing", lambda x, y: relay.concatenate([x, y], -1), [X, np.zeros((2, 3, 0), "float32")], X
    ),
    case("stack", lambda x, y: relay.stack([x, y], 1), [X, X * 2], np.stack([X, X * 2], 1)),
    case("split in equal parts", lambda x: relay.split(x, 3, 1), [X], tuple(np.split(X, 3, 1))),
    case("split at indices", lambda x: relay.split(x, (1, 4), 1), [Y], tuple(np.split(Y, (1, 4), 1))),
    case("split beyond the end", lambda x: relay.split(x, (-1, 99), 1), [Y], tuple(np.split(Y, (-1, 99), 1))),
    case(
        "meshgrid",
        lambda a, b: relay.meshgrid([a, b]),
        [random(3), random(2)],
        tuple(np.meshgrid(random(3), random(2), indexing="ij")),
    ),
    case(
        "layout NCHW to NHWC", lambda x: relay.layout_transform(x, "NCHW", "NHWC"), [IMAGE], IMAGE.transpose(0, 2, 3, 1)
    ),
    case("layout NCHW to NCHW3c", lambda x: relay.layout_transform(x, "NCHW", "NCHW3c"), [IMAGE], packed(IMAGE, 3)),
    case("layout with padding", lambda x: relay.layout_transform(x, "NCHW", "NCHW4c"), [IMAGE], packed(IMAGE, 4)),
    case(
        "layout between blocks",
        lambda x: relay.layout_transform(x, "NCHW2c", "NCHW3c"),
        [packed(IMAGE, 2)],
        packed(IMAGE, 3),
    ),
    case(
        "layout of a kernel",
        lambda x: relay.layout_transform(x, "OIHW", "OIHW2i4o"),
        [WEIGHT],
        WEIGHT.reshape(2, 4, 3, 2, 3, 3).transpose(0, 2, 4, 5, 3, 1),
    ),
    case("strided_slice", lambda x: relay.strided_slice(x, [0, 1], [2, 3]), [X], X[0:2, 1:3]),
    case("strided_slice past the end", lambda x: relay.strided_slice(x, [0, 0, -3], [99, 2, 99]), [X], X[:, :2, -3:]),
    case(
        "strided_slice with strides",
        lambda x: relay.strided_slice(x, [0, 0, 3], [2, 3, -5], [1, 2, -1]),
        [X],
        X[:, ::2, ::-1],
    ),
    case("strided_slice of axes", lambda x: relay.strided_slice(x, [1], [3], axes=[-1]), [X], X[..., 1:3]),
    case(
        "strided_slice by size",
        lambda x: relay.strided_slice(x, [0, 1, 1], [1, -1, 2], slice_mode="size"),
        [X],
        X[0:1, 1:, 1:3],
    ),
    case("strided_slice of nothing", lambda x: relay.strided_slice(x, [2], [1]), [X], X[2:1]),
    case("slice_like", relay.slice_like, [Y, X], Y[:2, :3, :4]),
    case("slice_like of axes", lambda x, y: relay.slice_like(x, y, [1]), [Y, X], Y[:, :3]),
    case(
        "strided_set",
        lambda x, v: relay.strided_set(x, v, [0, 1], [2, 3], [1, 1]),
        [random(2, 4), random(2, 2, seed=9)],
        np.concatenate([random(2, 4)[:, :1], random(2, 2, seed=9), random(2, 4)[:, 3:]], 1),
    ),
    case("repeat", lambda x: relay.repeat(x, 2, 1), [X], np.repeat(X, 2, 1)),
    case("tile", lambda x: relay.tile(x, (2, 1, 3, 1)), [X], np.tile(X, (2, 1, 3, 1))),
    case("tile fewer dimensions", lambda x: relay.tile(x, (2,)), [X], np.tile(X, (2,))),
    case(
        "broadcast_to",
        lambda x: relay.broadcast_to(x, (4, 2, 3)),
        [random(2, 1)],
        np.broadcast_to(random(2, 1), (4, 2, 3)),
    ),
    case("broadcast_to_like", relay.broadcast_to_like, [random(3, 1), X], np.broadcast_to(random(3, 1), X.shape)),
    case("collapse_sum_like", relay.collapse_sum_like, [X, random(3, 1)], X.sum((0, 2)).reshape(3, 1)),
    case("collapse_sum_to", lambda x: relay.collapse_sum_to(x, (1, 4)), [X], X.sum((0, 1)).reshape(1, 4), kernel=False),
    case("shape_of", relay.shape_of, [X], np.array([2, 3, 4], "int32")),
    case("ndarray_size", relay.ndarray_size, [X], np.int32(24)),
    case(
        "matrix_set_diag",
        relay.matrix_set_diag,
        [random(3, 4), random(3, seed=2)],
        np.where(np.eye(3, 4) > 0, np.pad(np.diag(random(3, seed=2)), [(0, 0), (0, 1)]), random(3, 4)),
    ),
    case("triu", lambda x: relay.trilu(x, relay.const(1)), [X], np.triu(X, 1)),
    case("tril", lambda x: relay.trilu(x, relay.const(-1), False), [X], np.tril(X, -1)),
    case("batch_flatten", relay.nn.batch_flatten, [X], X.reshape(2, 12)),
    case("device_copy", lambda x: relay.op.device_copy(x, "cpu", "cuda"), [X], X, kernel=False),
    case("on_device", lambda x: relay.annotation.on_device(x, "cuda"), [X], X, kernel=False),
    case("stop_fusion", relay.annotation.stop_fusion, [X], X),
    case(
        "integers keep their dtype",
        lambda x: relay.transpose(x),
        [integers(0, 9, 2, 3, dtype="int8")],
        integers(0, 9, 2, 3, dtype="int8").T,
    ),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


@pytest.mark.parametrize(
    ("shape", "newshape", "expected"),
    [
        ((2, 3, 4), (-4, 1, 2, -2), [1, 2, 3, 4]),
        ((2, 3, 4), (2, -4, -1, 3, -2), [2, 1, 3, 4]),
        ((2, 3, 4), (-3, -2), [6, 4]),
        ((2, 3, 4), (-2, 1, 1), [2, 3, 4, 1, 1]),
        ((2, 3, 4, 5), (-3, -3), [6, 20]),
    ],
)
def test_special_values_of_reshape(shape: tuple, newshape: tuple, expected: list) -> None:
    assert [int(d) for d in resolve_shape(shape, newshape)] == expected


def test_reshape_to_another_number_of_elements_is_refused() -> None:
    with pytest.raises(tvm.ir.errors.TypeInferenceError, match=r"reshape.*24 elements.*\(5, 5\)"):
        relay.transform.InferTypeLocal(relay.reshape(relay.var("x", shape=(2, 3, 4)), (5, 5)))


def test_parts_of_an_extent_that_is_not_known_have_the_cuts_extents() -> None:
    n = te.size_var("n")
    parts = infer_expr(relay.split(relay.var("x", shape=(3, n)), (2, 4, 7), 1).astuple()).checked_type
    assert parts == relay.TupleType([relay.TensorType((3, d), "float32") for d in (2, 2, 3, n - 7)])
    unknown = infer_expr(relay.split(relay.var("x", shape=(relay.Any(), 3)), (2, 4), 0).astuple()).checked_type
    assert [part.shape[0] for part in unknown.fields[:2]] == [2, 2]
    assert isinstance(unknown.fields[2].shape[0], relay.Any)
