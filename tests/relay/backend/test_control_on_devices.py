"""Branches and loops of programs on several devices, the CPU and a GPU; numpy tells what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.gpu import GPU, GPU_KIND, GPU_TARGET, need_gpu

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.relay.loops import while_loop
from tilewright.runtime.vm import Executable, VirtualMachine

Array = np.ndarray[Any, Any]
TARGETS = {"cpu": "llvm", GPU_KIND: GPU_TARGET}


@pytest.fixture(autouse=True, scope="module")
def device() -> None:
    need_gpu()


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def machine_of(program: IRModule | relay.Function, level: int = 2) -> VirtualMachine:
    mod = program if isinstance(program, IRModule) else IRModule.from_expr(program)
    with tvm.transform.PassContext(opt_level=level):
        exe = relay.vm.compile(mod, TARGETS)
    return VirtualMachine(Executable.load_exec(*exe.save()), [tvm.cpu(), GPU])


def there(value: relay.Expr) -> relay.Expr:
    return relay.annotation.on_device(value, GPU)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("deciding", [tvm.cpu(), GPU])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (0, 4)])
def test_a_condition_and_branches_on_devices(level: int, deciding: Any, shape: tuple[int, ...]) -> None:
    x, y = relay.var("x", shape=shape), relay.var("y", shape=shape)
    curved = there(relay.tanh(x))
    condition = relay.annotation.on_device(relay.less(relay.sum(curved), relay.const(0.5)), deciding)
    yes = relay.add(there(relay.exp(curved)), y)
    body = relay.If(condition, yes, relay.subtract(curved, there(relay.sqrt(relay.abs(y)))))
    machine = machine_of(relay.Function([x, y], relay.negative(body)), level)
    for a in (floats(*shape), np.abs(floats(*shape)) + 1, -np.abs(floats(*shape))):
        b = floats(*shape)
        t = np.tanh(a)
        wanted = np.exp(t) + b if t.sum() < 0.5 else t - np.sqrt(np.abs(b))
        np.testing.assert_allclose(machine.run(a, b).numpy(), -wanted, rtol=1e-4, atol=1e-5)


def test_a_branch_that_lies_on_a_device_as_a_whole() -> None:
    """Its condition is a parameter there; one branch is a constant."""
    x, c = relay.var("x", shape=(3,)), relay.var("c", shape=(), dtype="bool")
    chosen = there(relay.If(c, relay.exp(x), relay.const(np.arange(3, dtype="float32"))))
    machine = machine_of(relay.Function([c, x], relay.add(chosen, relay.const(1.0))))
    a = floats(3)
    for yes in (True, False):
        wanted = np.exp(a) if yes else np.arange(3)
        np.testing.assert_allclose(machine.run(np.array(yes), a).numpy(), wanted + 1, rtol=1e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_a_loop(whole: bool) -> None:
    """What is carried is on the CPU, or (``whole``) all on the device, with conditions and the first constants."""
    x, n = relay.var("x", shape=(2, 5)), relay.var("n", shape=(), dtype="int32")
    i, total = relay.var("i", shape=(), dtype="int32"), relay.var("total", shape=(2, 5))

    def step(i: relay.Expr, total: relay.Expr) -> list[relay.Expr]:
        return [relay.add(i, relay.const(1)), relay.add(there(relay.tanh(total)), x)]

    loop = while_loop(lambda i, total: relay.less(i, n), [i, total], step)
    done = relay.Call(loop, [relay.const(0), relay.const(np.ones((2, 5), "float32"))])
    machine = machine_of(relay.Function([n, x], relay.TupleGetItem(there(done) if whole else done, 1)))
    a = floats(2, 5)
    for rounds in (0, 1, 9):
        wanted = np.ones((2, 5), "float32")
        for _ in range(rounds):
            wanted = np.tanh(wanted) + a
        np.testing.assert_allclose(machine.run(np.array(rounds, "int32"), a).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_global_function_that_calls_itself() -> None:
    mod = relay.fromtext("""#[version = "0.0.5"]
def @grow(%i: int32, %past: Tensor[(?, 3), float32], %row: Tensor[(1, 3), float32]) -> Tensor[(?, 3), float32] {
  if (equal(%i, 0)) { %past } else {
    %0 = exp(%row);
    %1 = on_device(%0, device_type=4);
    @grow(subtract(%i, 1), concatenate((%past, %1), axis=0), %row)
  }
}
def @main(%i: int32, %past: Tensor[(?, 3), float32], %row: Tensor[(1, 3), float32]) { @grow(%i, %past, %row) }""")
    machine = machine_of(mod)
    past, row = floats(2, 3), floats(1, 3)
    for rounds in (0, 1, 5):
        wanted = np.concatenate([past, *[np.exp(row)] * rounds])
        np.testing.assert_allclose(machine.run(np.array(rounds, "int32"), past, row).numpy(), wanted, rtol=1e-5)


def test_a_device_without_a_target() -> None:
    x, c = relay.var("x", shape=(3,)), relay.var("c", shape=(), dtype="bool")
    body = relay.If(c, relay.annotation.on_device(relay.exp(x), tvm.cuda()), x)
    with pytest.raises(TilewrightError, match="which has no target"):
        relay.vm.compile(IRModule.from_expr(relay.Function([c, x], body)), TARGETS)
