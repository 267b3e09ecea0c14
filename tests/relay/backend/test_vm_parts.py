"""Programs with branches, loops and functions: the data flow between these takes the layouts of data flow alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import relay, runtime
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.op.nn.dense import Dense
from tilewright.runtime.vm import Executable, VirtualMachine

RNG = np.random.default_rng(0)
IMAGE = relay.TensorType((1, 16, 9, 7), "float32")
BOOL = relay.TensorType((), "bool")


def weight(*shape: int) -> Any:
    return relay.const(RNG.standard_normal(shape).astype("float32") / 12)


WEIGHTS = [weight(16, 16, 3, 3) for _ in range(3)]
MATRIX = weight(24, 24)


def conv(x: Any, index: int) -> Any:
    return relay.nn.relu(relay.nn.conv2d(x, WEIGHTS[index], padding=(1, 1)))


def one_branch() -> tuple[Function, list[Any]]:
    x, c = relay.var("x", IMAGE), relay.var("c", BOOL)
    first = conv(x, 0)
    body = relay.If(c, conv(first, 1), relay.tanh(first))
    return relay.Function([x, c], relay.add(conv(body, 2), first)), [RNG.random((1, 16, 9, 7), "float32"), None]


def nested_branches() -> tuple[Function, list[Any]]:
    x, c = relay.var("x", IMAGE), relay.var("c", BOOL)
    low, high = relay.If(c, conv(x, 0), x), relay.sum(conv(x, 1))
    deep = relay.If(c, relay.If(relay.greater(high, relay.const(1.0)), conv(low, 2), low), relay.multiply(low, high))
    return relay.Function([x, c], relay.Tuple([deep, high])), [RNG.random((1, 16, 9, 7), "float32"), None]


def a_loop() -> tuple[Function, list[Any]]:
    x, c = relay.var("x", relay.TensorType((2, 24), "float32")), relay.var("c", BOOL)
    loop, i, y = relay.var("loop"), relay.var("i", "int32"), relay.var("y", relay.TensorType((2, 24), "float32"))
    step = relay.tanh(relay.nn.dense(y, MATRIX))
    inner = relay.If(relay.equal(i, relay.const(0)), y, relay.Call(loop, [relay.subtract(i, relay.const(1)), step]))
    body = relay.Let(loop, relay.Function([i, y], inner), relay.If(c, relay.Call(loop, [relay.const(5), x]), x))
    return relay.Function([x, c], body), [RNG.random((2, 24), "float32"), None]


def a_reference() -> tuple[Function, list[Any]]:
    x, c = relay.var("x", IMAGE), relay.var("c", BOOL)
    ref, old, unused = relay.var("ref"), relay.var("old"), relay.var("unused")
    body = relay.Let(unused, relay.RefWrite(ref, conv(x, 1)), relay.add(old, relay.RefRead(ref)))
    body = relay.Let(ref, relay.RefCreate(conv(x, 0)), relay.Let(old, relay.RefRead(ref), body))
    return relay.Function([x, c], relay.If(c, body, x)), [RNG.random((1, 16, 9, 7), "float32"), None]


def compiled(func: Function) -> Executable:
    with relay.build_config(opt_level=3):
        return relay.vm.compile(IRModule.from_expr(func), "llvm")


def flat(value: Any) -> list[np.ndarray]:
    return [v.numpy() for v in value] if isinstance(value, (runtime.container.ADT, list, tuple)) else [value.numpy()]


@pytest.mark.parametrize("build", [one_branch, nested_branches, a_loop, a_reference])
def test_programs_give_what_the_operators_mean(build: Callable[[], tuple[Function, list[Any]]]) -> None:
    func, inputs = build()
    machine = VirtualMachine(compiled(func), runtime.cpu())
    reference = relay.create_executor("debug", IRModule.from_expr(func)).evaluate()
    for taken in (True, False):
        given = [np.array(taken) if value is None else value for value in inputs]
        for found, expected in zip(flat(machine.run(*given)), flat(reference(*given)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("build", [one_branch, nested_branches, a_reference])
def test_convolutions_beside_branches_are_packed(build: Callable[[], tuple[Function, list[Any]]]) -> None:
    kernels = compiled(build()[0]).primitive_ops
    convolutions = [kernel for kernel in kernels if "conv2d" in kernel]
    assert convolutions
    assert all(
        "NCHWc" in kernel and "weight_transform" not in kernel.replace("without_weight_transform", "")
        for kernel in convolutions
    )


def test_weights_of_a_loop_are_packed_once() -> None:
    exe = compiled(a_loop()[0])
    assert any("dense_pack" in kernel for kernel in exe.primitive_ops)
    assert not any(Dense.name.replace(".", "_") in kernel and "pack" not in kernel for kernel in exe.primitive_ops)
