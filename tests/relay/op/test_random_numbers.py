"""Threefry against the vectors that its authors publish (Random123's kat_vectors); keys and what is made of them."""

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay.op.random.threefry import threefry

ZERO = np.zeros(10, "uint64")
LARGEST = (2**64 - 1, 2**64 - 1)
STATES = {
    "a fresh state": np.array([7, 8, 9, 10, 0, 0, 0, 0, 1 << 63, 0], "uint64"),
    "room for one block": np.array([7, 8, 9, 10, 0, 0, 0, 2**64 - 6, 1 << 63, 0], "uint64"),
    "no room": np.array([7, 8, 9, 10, 1 << 63, 0, 0, 2**64 - 2, 1 << 62, 0], "uint64"),
    "no room at the end of the path": np.array([7, 8, 9, 10, 5, 1 << 63, 0, 2**64 - 2, 0, 0], "uint64"),
    "the last bit of the path's first word": np.array([7, 8, 9, 10, 6, 0, 0, 2**64 - 2, 1, 0], "uint64"),
    "the last bit of the path": np.array([7, 8, 9, 10, 6, 2, 0, 2**64 - 2, 0, 1], "uint64"),
}
KNOWN = [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]
ONES = [0x29C24097942BBA1B, 0x0371BBFB0F6F4E11, 0x3C231FFA33F83A1C, 0xCD29113FDE32D168]


def after(state: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The next state and ``count`` words, in Python's integers."""
    key, path, (_, at), place = state[:4], *(tuple(int(w) for w in state[i : i + 2]) for i in (4, 6, 8))
    blocks = -(-count // 4)
    if at + 4 * blocks >= 2**64 - 1:
        if place == (0, 0):
            key, path, place = encrypt(key, (*path, *LARGEST)), (0, 0), (1 << 63, 0)
        else:
            path, place = (path[0] | place[0], path[1] | place[1]), halved(place)
        at = 0
    words = [encrypt(key, (*path, 0, at + i)) for i in range(blocks)]
    bits = np.concatenate([np.zeros(0, "uint64"), *words])[:count]
    return np.array([*key, *path, 0, at + 4 * blocks, *place], "uint64"), bits


def encrypt(key: np.ndarray, words: tuple[int, ...]) -> np.ndarray:
    return threefry(key, np.array([words], "uint64"))[0]


def halved(place: tuple[int, int]) -> tuple[int, int]:
    return divmod((place[0] << 64 | place[1]) >> 1, 1 << 64)


def halves(state: np.ndarray) -> tuple[np.ndarray, ...]:
    key, rest, place = state[:4], state[4:8], tuple(int(w) for w in state[8:])
    turn = place
    if place == (0, 0):
        key, rest, turn = encrypt(key, tuple(rest)), np.zeros(4, "uint64"), (1 << 63, 0)
    left = np.array([*key, *rest, *halved(turn)], "uint64")
    right = left.copy()
    right[4:6] |= np.array(turn, "uint64")
    return left, right


def drawn(key: relay.Expr, count: int) -> relay.TupleWrapper:
    return relay.TupleWrapper(relay.random.threefry_generate(key, (count,)), 2)


CASES = [
    case("a block of zeros", lambda k: drawn(k, 4), [ZERO],
         (np.array([0] * 7 + [4, 0, 0], "uint64"), np.array(KNOWN, "uint64"))),
    *(
        case(f"{n} words, {name}", lambda k, n=n: drawn(k, n), [state], after(state, n))
        for name, state in STATES.items() for n in (0, 1, 5, 13)
    ),
    *(
        case(f"two keys, {name}", lambda k: relay.TupleWrapper(relay.random.threefry_split(k), 2), [state],
             halves(state))
        for name, state in STATES.items()
    ),
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
    np.testing.assert_array_equal(words, np.array([3, 1, 0, 0, 0, 0, 0, 0, 1 << 63, 0], "uint64"))


def test_what_is_no_key_is_told() -> None:
    for data in (np.zeros(9, "uint64"), np.zeros(10, "int64")):
        with pytest.raises(TypeInferenceError, match="key"):
            relay.transform.InferType()(tvm.IRModule.from_expr(relay.random.threefry_split(relay.const(data))))
