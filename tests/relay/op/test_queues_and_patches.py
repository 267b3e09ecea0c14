"""unique, nn.fifo_buffer, write_rows and nn.correlation against numpy, element by element."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random
from tests.topi.harness import compiled

from tilewright import relay, topi
from tilewright.ir.errors import InvalidShapeError, TypeInferenceError
from tilewright.relay.type_infer import infer_expr


def different(data: np.ndarray, is_sorted: bool) -> list[np.ndarray]:
    """Elements, first places, which one each is, their number, and counts."""
    seen: list[float] = []
    for value in data.tolist():
        if not any(value == s or (value != value and s != s) for s in seen):
            seen.append(value)
    if is_sorted:
        seen.sort(key=lambda v: (v != v, v))
    same = [[v == s or (v != v and s != s) for s in seen] for v in data.tolist()]
    which = np.array([row.index(True) for row in same], "int32").reshape(-1)
    first = np.array([which.tolist().index(k) for k in range(len(seen))], "int32")
    counts = np.array([which.tolist().count(k) for k in range(len(seen))], "int32")
    values = np.array(seen, data.dtype)
    filled = [np.concatenate([a, np.zeros(len(data) - len(seen), a.dtype)]) for a in (values, first, counts)]
    return [filled[0], filled[1], which, np.array([len(seen)], "int32"), filled[2]]


def correlated(a, b, size, reach, step, between, padding, product) -> np.ndarray:
    top, left, bottom, right = padding
    a, b = (np.pad(v.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right))) for v in (a, b))
    border, radius = reach + size // 2, reach // between
    rows, columns = (-(-(n - 2 * border) // step) for n in a.shape[2:])
    offsets = [(y * between, x * between) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1)]
    out = np.zeros((a.shape[0], len(offsets), rows, columns))
    for n, q, i, j in np.ndindex(out.shape):
        y, x = i * step + reach, j * step + reach
        dy, dx = offsets[q]
        one, other = a[n, :, y : y + size, x : x + size], b[n, :, y + dy : y + dy + size, x + dx : x + dx + size]
        out[n, q, i, j] = (one * other if product else abs(one - other)).mean()
    return out.astype("float32")


def written(data, rows, starts, axis) -> np.ndarray:
    out = data.copy()
    for index in np.ndindex(rows.shape):
        place = list(index)
        place[axis] += int(starts[index[0] if len(starts) > 1 else 0])
        out[tuple(place)] = rows[index]
    return out


ROW, LONG = integers(0, 6, 13), integers(-40, 40, 700, dtype="int64")
REAL = np.array([2, np.nan, -1, 2, np.nan, np.inf, -1, 0.5], "float32")
QUEUE, NEW = random(3, 5, 4), random(3, 2, 4, seed=1)
ONE, OTHER = random(2, 3, 9, 11), random(2, 3, 9, 11, seed=1)
PATCHES = [
    (1, 4, 1, 1, (4, 4, 4, 4), True),
    (3, 2, 1, 2, (2, 1, 3, 0), True),
    (3, 2, 2, 1, (3, 3, 3, 3), False),
    (1, 0, 1, 1, (0, 0, 0, 0), False),
]
CASES = [
    *(
        case(
            f"{name} that differ{', sorted' * is_sorted}",
            lambda x, s=is_sorted: relay.unique(x, s, True),
            [data],
            different(data, is_sorted),
        )
        for name, data in (("integers", ROW), ("many", LONG), ("numbers", REAL), ("one", ROW[:1]))
        for is_sorted in (True, False)
    ),
    case("without counts", lambda x: relay.unique(x), [ROW], different(ROW, True)[:4]),
    case(
        "a queue",
        lambda d, b: relay.nn.fifo_buffer(d, b, 1),
        [NEW, QUEUE],
        np.concatenate([QUEUE, NEW], 1)[:, 2:],
    ),
    case("a queue that is all new", lambda d, b: relay.nn.fifo_buffer(d, b, -1), [QUEUE, QUEUE[:, ::-1]], QUEUE),
    *(
        case(
            f"rows of {shape} from {starts} on along {axis}",
            lambda d, r, s, axis=axis: relay.write_rows(d, r, s, axis=axis),
            [QUEUE, random(*shape, seed=2), np.array(starts, dtype)],
            written(QUEUE, random(*shape, seed=2), starts, axis),
        )
        for shape, starts, axis, dtype in (
            ((3, 1, 4), [4, 0, 2], 1, "int32"),
            ((3, 2, 4), [3], -2, "int64"),
            ((3, 5, 3), [1, 0, 1], 2, "int64"),
            ((3, 5, 4), [0], 1, "int32"),
            ((3, 0, 4), [5], 1, "int32"),
        )
    ),
    *(
        case(
            f"correlation {sizes}",
            lambda a, b, s=sizes: relay.nn.correlation(a, b, *s, "NCHW"),
            [ONE, OTHER],
            correlated(ONE, OTHER, *sizes),
        )
        for sizes in PATCHES
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


def test_no_elements_have_none_that_differ() -> None:
    found = compiled(lambda x: topi.unique(x), np.zeros(0, "int32"), schedule=topi.generic.schedule_unique)
    assert [a.tolist() for a in found] == [[], [], [], [0]]


@pytest.mark.parametrize(
    ("rows", "starts", "axis", "message"),
    [
        ((3, 6, 4), (3,), 1, "6 rows are more than the buffer holds, 5"),
        ((3, 1, 4), (2,), 1, "2 starts for a batch of 3"),
        ((3, 1, 4), (3,), 0, "the first dimension is the batch"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, starts, axis, message) -> None:
    data, new = relay.var("d", shape=(3, 5, 4)), relay.var("r", shape=rows)
    with pytest.raises(TypeInferenceError, match=message):
        infer_expr(relay.write_rows(data, new, relay.var("s", shape=starts, dtype="int32"), axis=axis))


def test_a_queue_holds_what_it_is_given() -> None:
    data, buffer = relay.var("d", shape=(3, 6)), relay.var("b", shape=(3, 5))
    with pytest.raises(TypeInferenceError, match="6 elements are more than the buffer holds, 5"):
        infer_expr(relay.nn.fifo_buffer(data, buffer, 1))
    with pytest.raises(InvalidShapeError, match="dimension 0 of the data, 2, does not fit the buffer's, 3"):
        compiled(lambda a, b: topi.nn.fifo_buffer(a, b, 1), random(2, 5), random(3, 5))


def test_patches_have_a_middle() -> None:
    a, b = relay.var("a", shape=(1, 1, 5, 5)), relay.var("b", shape=(1, 1, 5, 5))
    with pytest.raises(TypeInferenceError, match="kernel_size should be odd, found 2"):
        infer_expr(relay.nn.correlation(a, b, 2, 1, 1, 1, 0, True, "NCHW"))
    with pytest.raises(TypeInferenceError, match="reach beyond the padded data"):
        infer_expr(relay.nn.correlation(a, b, 3, 4, 1, 1, 0, True, "NCHW"))
