"""gradient of whole programs: data flow stays a graph, every other construct runs backwards by closures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.prelude import Prelude
from tilewright.relay.testing import count_ops, make_nat_expr
from tilewright.relay.transform import gradient

TENSOR = relay.TensorType((3, 4), "float64")


def values(count: int = 1) -> list[np.ndarray]:
    return [np.random.default_rng(k).uniform(0.5, 2, (3, 4)) for k in range(count)]


def run(func: Any, *args: Any, mod: Any = None) -> Any:
    """(result, gradients) as numpy arrays."""
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(func) if mod is None else mod)
    out, grads = relay.create_executor(mod=typed).evaluate(func)(*args)
    return out, [g.numpy() for g in grads]


def test_data_flow_compiles() -> None:
    """A small classifier, on the graph executor, in float32."""
    shapes = [(5, 7), (3, 7), (3,)]
    params = [relay.var(n, shape=s) for n, s in zip(("x", "w", "b"), shapes, strict=True)]
    x, w, b = params
    scores = relay.nn.relu(relay.add(relay.nn.dense(x, w), b))
    func = gradient(relay.Function(params, relay.nn.log_softmax(scores)))
    arrays = [np.random.default_rng(0).normal(size=s).astype("float32") for s in shapes]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = torch.log_softmax(torch.relu(tensors[0] @ tensors[1].T + tensors[2]), -1)
    want.sum().backward()
    out, grads = relay.create_executor("graph", tvm.IRModule.from_expr(func)).evaluate()(*arrays)
    np.testing.assert_allclose(out.numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    for have, tensor in zip(grads, tensors, strict=True):
        np.testing.assert_allclose(have.numpy(), tensor.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_nothing_is_computed_twice() -> None:
    x, w = relay.var("x", shape=(4, 4)), relay.var("w", shape=(4, 4))
    product = relay.nn.dense(x, w)
    func = relay.Function([x, w], relay.sum(product - relay.mean(product, keepdims=True)))
    assert count_ops(gradient(func, mode="first_order"))["nn.dense"] == 3  # one forward, two backward


def test_what_no_result_depends_on_has_zeros() -> None:
    x, n = relay.var("x", TENSOR), relay.var("n", shape=(2,), dtype="int32")
    _, (by_x, by_n) = run(gradient(relay.Function([x, n], relay.zeros_like(x))), values()[0], np.array([1, 2], "int32"))
    np.testing.assert_array_equal(by_x, np.zeros((3, 4)))
    np.testing.assert_array_equal(by_n, np.zeros(2, "int32"))


@pytest.mark.parametrize("mode, factors", [("first_order", 6), ("higher_order", 4)])
def test_tuples(mode: str, factors: int) -> None:
    """Of a tuple as the result: the sum of its fields, or the first of them."""
    x = relay.var("x", TENSOR)
    y = x + x
    func = gradient(relay.Function([x], relay.Tuple([y + y, y])), mode=mode)
    (first, second), (grad,) = run(func, values()[0])
    np.testing.assert_allclose(first.numpy(), 2 * second.numpy())
    np.testing.assert_allclose(grad, np.full((3, 4), factors))


def test_tuple_parameters() -> None:
    pair = relay.var("pair", relay.TupleType([TENSOR, TENSOR]))
    body = relay.TupleGetItem(pair, 0) * relay.TupleGetItem(pair, 1)
    func = gradient(relay.Function([pair], body))
    a, b = values(2)
    _, grads = relay.create_executor().evaluate(func)((a, b))
    for have, want in zip(grads[0], (b, a), strict=True):
        np.testing.assert_allclose(have.numpy(), want)


def test_branches() -> None:
    """The branch that is taken has gradients; the other parameter has none."""
    c, x, y = relay.var("c", shape=(), dtype="bool"), relay.var("x", TENSOR), relay.var("y", TENSOR)
    func = gradient(relay.Function([c, x, y], relay.log(relay.If(c, x * x, y))))
    a, b = values(2)
    for taken in (True, False):
        _, (_, by_x, by_y) = run(func, np.array(taken), a, b)
        np.testing.assert_allclose(by_x, 2 / a if taken else 0 * a)
        np.testing.assert_allclose(by_y, 0 * b if taken else 1 / b)


def test_closures() -> None:
    """A function that is passed around, and takes a value from around it."""
    x, y, z = relay.var("x", TENSOR), relay.var("y", TENSOR), relay.var("z", TENSOR)
    f = relay.Var("f", relay.FuncType([TENSOR], TENSOR))
    twice = relay.Function([f, z], f(f(z)))
    func = gradient(relay.Function([x, y], twice(relay.Function([v := relay.var("v", TENSOR)], v * y), x)))
    a, b = values(2)
    out, (by_x, by_y) = run(func, a, b)
    np.testing.assert_allclose(out.numpy(), a * b * b)
    np.testing.assert_allclose(by_x, b * b)
    np.testing.assert_allclose(by_y, 2 * a * b)


def test_recursion_through_data_types() -> None:
    """Three times x * x, by a polymorphic global function over natural numbers."""
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    mod.import_from_std("nat.rly")
    x = relay.var("x", TENSOR)
    square = relay.Function([v := relay.var("v", TENSOR)], v * v)
    iterate = mod.get_global_var("nat_iterate")
    mod["main"] = relay.Function([x], iterate(square, make_nat_expr(prelude, 3))(x))
    func = gradient(mod["main"], mod)
    assert "nat_iterate_grad" in mod
    (a,) = values()
    out, (grad,) = run(func, a, mod=mod)
    np.testing.assert_allclose(out.numpy(), a**8)
    np.testing.assert_allclose(grad, 8 * a**7)


def test_lists() -> None:
    """The product of a list's elements, in a fold."""
    mod = tvm.IRModule()
    p = Prelude(mod)
    x, y = relay.var("x", TENSOR), relay.var("y", TENSOR)
    a, b = relay.var("a", TENSOR), relay.var("b", TENSOR)
    fold = p.foldl(relay.Function([a, b], a * b), x, p.cons(y, p.cons(x, p.cons(y, p.nil()))))
    func = gradient(relay.Function([x, y], fold), mod)
    u, v = values(2)
    out, (by_x, by_y) = run(func, u, v, mod=mod)
    np.testing.assert_allclose(out.numpy(), u**2 * v**2)
    np.testing.assert_allclose(by_x, 2 * u * v**2)
    np.testing.assert_allclose(by_y, 2 * v * u**2)


def test_global_functions() -> None:
    mod = tvm.IRModule()
    x = relay.var("x", TENSOR)
    cube = relay.GlobalVar("cube")
    mod[cube] = relay.Function([x], x * x * x)
    y = relay.var("y", TENSOR)
    entry = relay.GlobalVar("entry")
    mod[entry] = relay.Function([y], cube(cube(y)))
    func = gradient(entry, mod)
    (a,) = values()
    _, (grad,) = run(func, a, mod=mod)
    np.testing.assert_allclose(grad, 9 * a**8)


def test_references() -> None:
    """A cell that is read, and written again."""
    x, cell, unit = relay.var("x", TENSOR), relay.Var("cell"), relay.Var("unit")
    body: Any = relay.RefRead(cell)
    body = relay.Let(unit, relay.RefWrite(cell, relay.RefRead(cell) * relay.RefRead(cell)), body)
    func = gradient(relay.Function([x], relay.Let(cell, relay.RefCreate(x), body)))
    (a,) = values()
    out, (grad,) = run(func, a)
    np.testing.assert_allclose(out.numpy(), a * a)
    np.testing.assert_allclose(grad, 2 * a)


def test_checkpoints_compute_again() -> None:
    """The same gradients; the function under the checkpoint runs once more, on the way back."""
    x, y = relay.var("x", TENSOR), relay.var("y", TENSOR)
    covered = relay.exp(relay.sin(x) * y)
    plain = gradient(relay.Function([x, y], covered * x))
    again = gradient(relay.Function([x, y], relay.annotation.checkpoint(covered) * x))
    u, v = values(2)
    out, wants = run(plain, u, v)
    have, grads = run(again, u, v)
    np.testing.assert_allclose(have.numpy(), out.numpy())
    for grad, want in zip(grads, wants, strict=True):
        np.testing.assert_allclose(grad, want)
    assert count_ops(again)["exp"] == count_ops(plain)["exp"] + 1


def test_a_checkpoint_within_a_checkpoint() -> None:
    x = relay.var("x", TENSOR)
    inner = relay.annotation.checkpoint(relay.sin(x))
    func = gradient(relay.Function([x], relay.annotation.checkpoint(inner * inner)))
    (a,) = values()
    _, (grad,) = run(func, a)
    np.testing.assert_allclose(grad, 2 * np.sin(a) * np.cos(a))


def test_many_operators_in_a_row() -> None:
    """Deep programs: 400 operators one after another, as a graph and with a branch at the end."""
    x, c = relay.var("x", shape=(1,), dtype="float64"), relay.var("c", shape=(), dtype="bool")
    y: Any = x
    for _ in range(400):
        y = relay.multiply(y, relay.const(1.0001, "float64"))
    _, (grad,) = run(gradient(relay.Function([x], y)), np.ones(1))
    np.testing.assert_allclose(grad, [1.0001**400])
    made = gradient(relay.Function([x, c], relay.If(c, y, x)))
    relay.transform.InferType()(tvm.IRModule.from_expr(made))


def test_a_network_learns() -> None:
    """Two layers learn exclusive or by plain steps against the gradient, compiled."""
    shapes = {"w1": (8, 2), "b1": (8,), "w2": (2, 8), "b2": (2,)}
    x, target = relay.var("x", shape=(4, 2)), relay.var("target", shape=(4, 2))
    w1, b1, w2, b2 = (relay.var(name, shape=shape) for name, shape in shapes.items())
    hidden = relay.tanh(relay.nn.bias_add(relay.nn.dense(x, w1), b1))
    scores = relay.nn.log_softmax(relay.nn.bias_add(relay.nn.dense(hidden, w2), b2))
    loss = relay.nn.cross_entropy_with_logits(scores, target)
    func = gradient(relay.Function([x, target, w1, b1, w2, b2], loss), mode="first_order")
    step = relay.create_executor("graph", tvm.IRModule.from_expr(func)).evaluate()
    inputs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32")
    targets = np.array([[1, 0], [0, 1], [0, 1], [1, 0]], "float32")
    generator = np.random.default_rng(0)
    weights = [generator.normal(size=shape).astype("float32") for shape in shapes.values()]
    losses = []
    for _ in range(300):
        found, grads = step(inputs, targets, *weights)
        losses.append(float(found.numpy()))
        weights = [w - 0.5 * g.numpy() for w, g in zip(weights, grads[2:], strict=True)]
    assert losses[0] > 0.4
    assert losses[-1] < 0.02


def test_first_order_names_what_it_does_not_follow() -> None:
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", TENSOR)
    with pytest.raises(
        UnsupportedError, match="follows data flow, and this function has branches; use mode='higher_order'"
    ):
        gradient(relay.Function([c, x], relay.If(c, x, x)), mode="first_order")


def test_arguments_that_are_no_functions() -> None:
    x = relay.var("x", TENSOR)
    with pytest.raises(UnsupportedError, match=r"takes a function, found a Var; wrap it in relay\.Function"):
        gradient(x)
    with pytest.raises(UnsupportedError, match="mode of gradient is one of higher_order, first_order; found 'second'"):
        gradient(relay.Function([x], x), mode="second")
