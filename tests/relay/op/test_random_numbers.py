"""Threefry against the vectors that its authors publish (Random123's kat_vectors); keys and what is made of them."""

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay.op.random.threefry import threefry

ZERO = np.zeros(10, "uint64")
LAST = np.array([7, 8, 9, 10, 0, 0, 3, 2**64 - 2, 0, 0], "uint64")
KNOWN = [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]
ONES = [0x29C24097942BBA1B, 0x0371BBFB0F6F4E11, 0x3C231FFA33F83A1C, 0xCD29113FDE32D168]


def after(state: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The next state and ``count`` words, counters in Python's integers."""
    start = int(state[6]) * 2**64 + int(state[7])
    blocks = -(-count // 4)
    counters = [divmod((start + i) % 2**128, 2**64) for i in range(blocks + 1)]
    words = [threefry(state[:4], np.array([[*state[4:6], *c]], "uint64")) for c in counters[:-1]]
    bits = np.concatenate([np.zeros(0, "uint64"), *(w.reshape(-1) for w in words)])[:count]
    return np.concatenate([state[:6], np.array(counters[-1], "uint64"), state[8:]]), bits


def halves(state: np.ndarray) -> tuple[np.ndarray, ...]:
    marks = np.array([[1, 0, 0, 0], [1, 1, 0, 0]], "uint64")
    keys = threefry(state[:4], state[4:8] + marks)
    return tuple(np.concatenate([key, np.zeros(6, "uint64")]) for key in keys)


def drawn(key: relay.Expr, count: int) -> relay.TupleWrapper:
    return relay.TupleWrapper(relay.random.threefry_generate(key, (count,)), 2)


CASES = [
    case("a block of zeros", lambda k: drawn(k, 4), [ZERO],
         (np.array([0] * 7 + [1, 0, 0], "uint64"), np.array(KNOWN, "uint64"))),
    *(
        case(f"{n} words past the end of a word of the counter", lambda k, n=n: drawn(k, n),
             [LAST], after(LAST, n))
        for n in (1, 5, 12, 13)
    ),
    case("two keys", lambda k: relay.TupleWrapper(relay.random.threefry_split(k), 2), [LAST], halves(LAST)),
]  # fmt: skip


def test_the_published_vectors() -> None:
    np.testing.assert_array_equal(threefry(ZERO[:4], ZERO[None, :4])[0], np.array(KNOWN, "uint64"))
    ones = np.full(4, 2**64 - 1, "uint64")
    np.testing.assert_array_equal(threefry(ones, ones[None])[0], np.array(ONES, "uint64"))


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers(dtype: str) -> None:
    drawn = relay.Function([], relay.random.uniform(relay.random.threefry_key(5), (40, 51), dtype, -3.0, 7.0))
    _, found = relay.create_executor("graph").evaluate(drawn)()
    numbers = found.numpy()
    assert numbers.dtype == dtype and numbers.min() >= -3 and numbers.max() < 7
    counts = np.histogram(numbers, 10, (-3, 7))[0]
    assert ((counts - 204) ** 2 / 204).sum() < 27.9  # chi-squared of 9 degrees of freedom: 1 in 1,000 is above


def test_keys_of_seeds() -> None:
    words = relay.random.threefry_key(2**64 + 3).data.numpy()
    np.testing.assert_array_equal(words, np.array([3, 1] + [0] * 8, "uint64"))


def test_what_is_no_key_is_told() -> None:
    for data in (np.zeros(9, "uint64"), np.zeros(10, "int64")):
        with pytest.raises(TypeInferenceError, match="key"):
            relay.transform.InferType()(tvm.IRModule.from_expr(relay.random.threefry_split(relay.const(data))))
