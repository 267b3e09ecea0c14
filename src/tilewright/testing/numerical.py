"""Checks of values and expressions, as TVM 0.8's ``tvm.testing`` names them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright import arith, tir
from tilewright.ir import Range


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raise unless ``actual`` and ``desired`` have one shape and differ by ``atol + rtol * abs(desired)`` at most.

    Unlike numpy's function of this name, which has an ``atol`` of 0 and broadcasts.

    Raises:
        AssertionError: the shapes or some elements differ.
    """
    actual, desired = np.asanyarray(actual), np.asanyarray(desired)
    if actual.shape != desired.shape:
        raise AssertionError(f"the shape is {actual.shape}, not {desired.shape}")
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol)


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    grad_values: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Compare gradients with differences of the function's values.

    Args:
        function: a scalar function of arrays, passed by position if ``input_values`` is a sequence, else by name.
        input_values: where the gradients are taken.
        grad_values: the gradient by each input that is to be checked, of its shape.
        function_value: the function there, if it is known.
        delta: the step. Gradients are compared with central differences over it, or with fourth-order ones if those
            are far off.
        atol, rtol: how far a gradient may be off, as a vector: ``atol * sqrt(size) + rtol * its length``.

    Raises:
        AssertionError: a gradient has another shape than its input, or is too far off.
        ValueError: a difference is not finite.
    """
    if not isinstance(input_values, Mapping):
        names = [str(i) for i in range(len(input_values))]
        by_position = function
        function = lambda **values: by_position(*(values[name] for name in names))  # noqa: E731
        input_values = dict(zip(names, input_values, strict=True))
    if not isinstance(grad_values, Mapping):
        grad_values = dict(zip(input_values, grad_values, strict=False))
    del function_value  # only one-sided differences would want it

    for name, gradient in grad_values.items():
        value = input_values[name]
        if gradient.shape != value.shape:
            raise AssertionError(f"the gradient by {name!r} has the shape {gradient.shape}, the input {value.shape}")
        numerical = np.zeros(gradient.shape)
        for at in np.ndindex(gradient.shape):

            def central(step: float, name: str = name, at: tuple[int, ...] = at) -> float:
                ends = []
                for sign in (1, -1):
                    moved = input_values[name].copy()
                    moved[at] += sign * step
                    ends.append((moved[at], float(function(**{**input_values, name: moved}))))
                (x1, y1), (x0, y0) = ends  # the step that was taken, after rounding
                return float((y1 - y0) / (float(x1) - float(x0)))

            numerical[at] = central(delta)
            if abs(numerical[at] - gradient[at]) >= atol + rtol * abs(numerical[at]):
                numerical[at] = (4 * central(delta / 2) - numerical[at]) / 3
        distance, length = np.linalg.norm(numerical - gradient), np.linalg.norm(numerical)
        if not np.isfinite(distance) or not np.isfinite(length):
            raise ValueError(f"a gradient by {name!r} is not finite\ngiven: {gradient}\nfrom values: {numerical}")
        if distance > atol * np.sqrt(gradient.size) + rtol * length:
            off = np.abs(numerical - gradient) >= atol + rtol * np.abs(numerical)
            raise AssertionError(
                f"the gradient by {name!r} is {distance:.3g} away from the function's differences, whose length is "
                f"{length:.3g}; {off.sum()} of {gradient.size} elements are off, "
                f"first {np.argwhere(off)[:5].tolist()}\n"
                f"given: {gradient}\nfrom values: {numerical}"
            )


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raise unless two expressions of whole numbers are shown to be equal.

    Raises:
        ValueError: their difference is not simplified to 0.
    """
    difference = arith.Analyzer().simplify(lhs - rhs)
    if not (isinstance(difference, tir.IntImm) and difference.value == 0):
        raise ValueError(f"{lhs} and {rhs} are not equal: they differ by {difference}")


def check_int_constraints_trans_consistency(
    constraints_trans: arith.IntConstraintsTransform, vranges: Mapping[tir.Var, Range] | None = None
) -> None:
    """Raise unless the two systems of a transformation have the same solutions, each of them mapped there and back.

    Args:
        constraints_trans: from ``arith.solve_linear_equations`` or ``solve_linear_inequalities``.
        vranges: ranges of variables that neither system solves for; all ranges are of numbers.

    Raises:
        AssertionError: a solution of one is none of the other, or comes back as another; with its values.
    """
    t = constraints_trans
    for one, other, there, back in (
        (t.src, t.dst, t.src_to_dst, t.dst_to_src),
        (t.dst, t.src, t.dst_to_src, t.src_to_dst),
    ):
        substitute = tir.stmt_functor.substitute
        holds = [substitute(relation, back) for relation in other.relations]
        for variable, within in other.ranges.items():
            mapped = back.get(variable, variable)
            holds += [mapped >= within.min, mapped < within.min + within.extent]
        holds += [variable.equal(substitute(there[variable], back)) for variable in one.variables if variable in there]
        given = tir.all(tir.const(True, "bool"), *one.relations)
        check_bool_expr_is_true(tir.all(tir.const(True, "bool"), *holds), {**(vranges or {}), **one.ranges}, given)


def check_bool_expr_is_true(
    bool_expr: tir.PrimExpr, vranges: Mapping[tir.Var, Range], cond: tir.PrimExpr | None = None
) -> None:
    """Raise unless ``bool_expr`` holds for all values in ``vranges`` of its variables for which ``cond`` holds.

    Raises:
        AssertionError: it does not, with values for which that is so.
    """
    analyzer = arith.Analyzer()
    expression = bool_expr if cond is None else tir.Or(tir.Not(cond), bool_expr)
    starts = [(int(r.min), int(r.extent)) for r in vranges.values()]
    for values in itertools.product(*(range(start, start + extent) for start, extent in starts)):
        given = dict(zip(vranges, values, strict=True))
        there = analyzer.simplify(tir.stmt_functor.substitute(expression, given))
        if not (isinstance(there, tir.IntImm) and there.value):
            example = ", ".join(f"{variable} = {value}" for variable, value in sorted(given.items(), key=str))
            raise AssertionError(f"{analyzer.simplify(expression)} is not true for {example}: it is {there}")
