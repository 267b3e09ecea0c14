"""Questions about the elements of constants, asked over parts and once."""

import numpy as np
import pytest

from tilewright import relay
from tilewright.relay.facts import all_are, any_is, is_whole, parts, same_bits, sample
from tilewright.runtime.ndarray import share_memory


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (1, 7), (5, 1, 11), (3, 4, 5)])
def test_parts_are_the_whole_array_in_order(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    for view in (values, values.T):
        pieces = list(parts(view, 4))
        assert all(piece.size <= 4 for piece in pieces)
        assert [x for piece in pieces for x in piece.ravel()] == list(view.ravel())


def test_parts_of_a_transposed_array_are_views() -> None:
    values = np.zeros((64, 32), "float32").T
    assert all(np.shares_memory(piece, values) for piece in parts(values, 100))


def test_an_answer_is_kept_with_its_constant() -> None:
    asked = []

    def positive(part: np.ndarray) -> np.ndarray:
        asked.append(part.size)
        return part > 0

    constant = relay.const(np.ones(1000, "float32"))
    assert all_are(constant, "test", positive) and sum(asked) >= 1000
    asked.clear()
    assert all_are(constant, "test", positive) and asked == []
    assert not all_are(relay.const(np.zeros(3, "float32")), "test", positive)


def test_the_first_elements_spare_a_look_at_the_others() -> None:
    asked = []
    constant = relay.const(np.arange(-1, 100000, dtype="float32"))
    assert not all_are(constant, "test", lambda part: asked.append(part.size) or part > 0)
    assert asked == [64]


def test_one_late_element_is_found() -> None:
    values = np.zeros((700, 600), "float32")
    values[-1, -1] = 1
    assert any_is(relay.const(values), "one", lambda part: part == 1)
    assert not all_are(relay.const(values), "zero", lambda part: part == 0)
    assert not any_is(relay.const(values), "two", lambda part: part == 2)


def test_whole_weights_are_found_in_any_order_of_axes() -> None:
    values = np.arange(6000, dtype="float32").reshape(60, 100)
    assert is_whole(relay.Constant(share_memory(values.T)))
    values[59, 99] += 0.5
    assert not is_whole(relay.Constant(share_memory(values.T)))


def test_same_bits_tells_zeros_of_two_signs_and_knows_nan() -> None:
    a = np.array([[0.0, np.nan], [1.0, 2.0]], "float32")
    b = np.ascontiguousarray(a.T).T
    assert same_bits(a, b) and sample(a) == sample(b)
    b[0, 0] = -0.0
    assert not same_bits(a, b)
