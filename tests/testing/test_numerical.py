"""``tilewright.testing``'s checks of values and expressions accept what is right and refuse what is not."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te


def test_allclose_wants_one_shape_and_close_elements() -> None:
    tvm.testing.assert_allclose([1.0, 0.0], [1.0, 1e-8])
    tvm.testing.assert_allclose(np.zeros((0, 3)), np.zeros((0, 3)))
    with pytest.raises(AssertionError, match=r"the shape is \(3,\), not \(1,\)"):
        tvm.testing.assert_allclose(np.ones(3), np.ones(1))
    with pytest.raises(AssertionError, match="Mismatched"):
        tvm.testing.assert_allclose(np.ones(3), np.array([1, 1, 1.1]), rtol=1e-3)


def test_numerical_gradients_by_position_and_by_name() -> None:
    x, y = np.array([[0.5, -1.0, 2.0]]), np.array([1.0, 3.0, 0.25])
    right = [2 * x * y, (x * x)[0]]
    tvm.testing.check_numerical_grads(lambda a, b: (a * a * b).sum(), [x, y], right)
    tvm.testing.check_numerical_grads(lambda a, b: (a * a * b).sum(), {"a": x, "b": y}, {"b": right[1]})
    with pytest.raises(AssertionError, match=r"gradient by 'a' .* first \[\[0, 2\]\]"):
        wrong = right[0].copy()
        wrong[0, 2] += 2
        tvm.testing.check_numerical_grads(lambda a, b: (a * a * b).sum(), {"a": x, "b": y}, {"a": wrong})
    with pytest.raises(AssertionError, match=r"shape \(3,\), the input \(1, 3\)"):
        tvm.testing.check_numerical_grads(lambda a, b: (a * b).sum(), [x, y], [x[0], y])
    with pytest.raises(ValueError, match="not finite"), np.errstate(all="ignore"):
        tvm.testing.check_numerical_grads(lambda a: np.log(a).sum(), [np.array([-1.0])], [np.array([1.0])])


def test_numerical_gradients_use_the_step_that_float32_takes() -> None:
    x = np.array([1000.0, 3.0], "float32")
    tvm.testing.check_numerical_grads(
        lambda a: float((a.astype("float64") ** 2).sum()), [x], [2 * x], atol=0, rtol=1e-3
    )


def test_equal_and_true_expressions() -> None:
    x, y = te.var("x"), te.var("y")
    tvm.testing.assert_prim_expr_equal((x + y) * 2, 2 * y + x * 2)
    with pytest.raises(ValueError, match="are not equal"):
        tvm.testing.assert_prim_expr_equal(x, y)
    ranges = {x: tvm.ir.Range(0, 6), y: tvm.ir.Range(-2, 3)}
    tvm.testing.check_bool_expr_is_true(x * 2 > y * 2, ranges, cond=x > y)
    with pytest.raises(AssertionError, match="not true for x = 0, y = 0"):
        tvm.testing.check_bool_expr_is_true(x > y, ranges, cond=x >= y)
