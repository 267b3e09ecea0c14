"""Binary operators against numpy."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.topi.harness import close, evaluate, random

from tilewright import te, topi
from tilewright.topi import InvalidShapeError

FLOAT = [
    (topi.add, np.add), (topi.subtract, np.subtract), (topi.multiply, np.multiply), (topi.divide, np.divide),
    (topi.maximum, np.maximum), (topi.minimum, np.minimum), (topi.mod, np.fmod), (topi.floor_mod, np.mod),
    (topi.floor_divide, np.floor_divide), (topi.greater, np.greater), (topi.less_equal, np.less_equal),
    (topi.not_equal, np.not_equal),
]  # fmt: skip
INTEGER = [
    (topi.add, np.add), (topi.floor_divide, np.floor_divide), (topi.floor_mod, np.mod), (topi.mod, np.fmod),
    (topi.bitwise_and, np.bitwise_and), (topi.bitwise_or, np.bitwise_or), (topi.bitwise_xor, np.bitwise_xor),
    (topi.left_shift, np.left_shift), (topi.right_shift, np.right_shift), (topi.equal, np.equal),
    (topi.divide, lambda a, b: np.trunc(a / b).astype("int32")), (topi.power, np.power),
]  # fmt: skip
SHAPES = [((3, 5), (3, 5)), ((4, 1, 7), (5, 1)), ((1,), (2, 3)), ((), (4,)), ((2, 0, 3), (3,))]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize(("op", "reference"), FLOAT)
def test_float_operators_broadcast_like_numpy(op: Callable, reference: Callable, a: tuple, b: tuple) -> None:
    x, y = random(*a), random(*b, seed=1) + 2
    close(evaluate(op, x, y), reference(x, y))


@pytest.mark.parametrize(("op", "reference"), INTEGER)
def test_integer_operators_are_exact(op: Callable, reference: Callable) -> None:
    x = np.arange(-10, 11, dtype="int32")
    y = (np.arange(21, dtype="int32") % 5) + 1
    close(evaluate(op, x, y), reference(x, y), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("op", "reference"),
    [(topi.logical_and, np.logical_and), (topi.logical_or, np.logical_or), (topi.logical_xor, np.logical_xor)],
)
def test_logic_on_bool(op: Callable, reference: Callable) -> None:
    x, y = np.array([[0], [1]], bool), np.array([0, 1], bool)
    assert (evaluate(op, x, y) == reference(x, y)).all()


def test_scalars_stand_for_either_side() -> None:
    x = random(6)
    close(evaluate(lambda t: topi.subtract(1.0, topi.multiply(t, 2)), x), 1 - 2 * x)


def test_python_operators_on_tensors() -> None:
    x, y = random(2, 3), random(3, seed=1)
    close(evaluate(lambda a, b: (a + b) * 2 - b / (1.5 + -a), x, y), (x + y) * 2 - y / (1.5 - x), rtol=1e-4)
    close(evaluate(lambda a: a.astype("int32"), x * 5), (x * 5).astype("int32"))


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(InvalidShapeError, match=r"\(2, 3\) and \(2, 4\)"):
        topi.add(te.placeholder((2, 3)), te.placeholder((2, 4)))
