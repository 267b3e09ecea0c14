"""Memory planned by named dimensions: numpy tells what programs must give, and how much of it is alive at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.gpu import GPU, GPU_TARGET, need_gpu
from tests.tiers import every

import tilewright as tvm
from tilewright import relay
from tilewright.ir.prim_expr import DimVar
from tilewright.runtime.bytecode import SIZES
from tilewright.runtime.vm import Executable, VirtualMachine

Array = np.ndarray[Any, Any]
F32 = "float32"


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F32)


def compiled(func: relay.Function, target: str = "llvm", **options: Any) -> Executable:
    """Without fusion: each operator is a kernel, and each result has memory."""
    with tvm.transform.PassContext(opt_level=0, config=options):
        return relay.vm.compile(func, target)


def machine_of(exe: Executable, device: Any = None) -> VirtualMachine:
    return VirtualMachine(Executable.load_exec(*exe.save()), [tvm.cpu()] if device is None else [device, tvm.cpu()])


Made = tuple[relay.Expr, Callable[[Array, Array], Array]]


def random_program(seed: int, low: int) -> tuple[relay.Function, list[Callable[[Array, Array], Array]]]:
    """Operators over (batch, seq, 4), (batch * seq, 4), (batch, 4), some in pairs; and what they are in numpy."""
    rng = np.random.default_rng(seed)
    batch, seq = DimVar("batch", low, 9), DimVar("seq", low, 99)
    x = relay.var("x", relay.TensorType((batch, seq, 4), F32))
    y = relay.var("y", relay.TensorType((seq, 4), F32))
    values: list[Made] = [(x, lambda a, b: a), (relay.add(x, y), lambda a, b: a + b)]
    for _ in range(12):
        (e, f), (g, h) = values[rng.integers(len(values))], values[-1 - rng.integers(min(3, len(values)))]
        both = relay.split(relay.concatenate((e, relay.tanh(g)), axis=2), 2, axis=2)
        rows = relay.reshape(relay.tanh(relay.reshape(e, (-1, 4))), (-1, 4))
        sums = relay.expand_dims(relay.mean(relay.concatenate((g, relay.ones_like(g)), axis=1), axis=1), 1)
        choices: list[Made] = [
            (relay.add(e, g), lambda a, b, f=f, h=h: f(a, b) + h(a, b)),
            (relay.multiply(relay.sigmoid(e), y), lambda a, b, f=f: b / (1 + np.exp(-f(a, b)))),
            (relay.subtract(both[1], both[0]), lambda a, b, f=f, h=h: np.tanh(h(a, b)) - f(a, b)),
            (relay.reshape_like(rows, e), lambda a, b, f=f: np.tanh(f(a, b))),
            (relay.add(e, sums), lambda a, b, f=f, h=h: f(a, b) + (h(a, b).sum(1, keepdims=True) / a.shape[1] + 1) / 2),
        ]
        values.append(choices[rng.integers(len(choices) - (low == 0))])
    kept = [values[i] for i in sorted({*rng.integers(1, len(values), 2), len(values) - 1})]
    return relay.Function([x, y], relay.Tuple([e for e, _ in kept])), [f for _, f in kept]


@pytest.mark.parametrize("seed", every(3, range(6)))
def test_random_programs(seed: int) -> None:
    """Three shapes each on one machine, to 1e-4; results of one run stay as they are in the next."""
    low = seed % 2
    program, wanted = random_program(seed, low)
    machine = machine_of(compiled(program))
    kept = []
    for batch, seq in ((1, 1), (3, 7), (2, 31), *(() if low else ((0, 5), (2, 0)))):
        x, y = floats(batch, seq, 4), floats(seq, 4)
        kept += list(zip(machine.run(x, y), [f(x, y) for f in wanted], strict=True))
    for found, want in kept:
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-4)


WIDTHS = (16, 48, 32, 64, 24, 8)


def widths(low: int = 1) -> relay.Function:
    """Each result has another number of columns; two are alive at once, at most of 32 and 64."""
    batch, seq = DimVar("batch", low, 9), DimVar("seq", low, 999)
    x = relay.var("x", relay.TensorType((batch, seq, 16), F32))
    value: relay.Expr = x
    for before, width in pairwise((16, *WIDTHS)):
        value = relay.take(value, relay.const(np.arange(width) * 5 % before, "int64"), axis=2)
    return relay.Function([x], relay.sum(value, axis=2))


def widths_of(x: Array) -> Array:
    for width in WIDTHS:
        x = x[:, :, np.arange(width) * 5 % x.shape[2]]
    return np.asarray(x.sum(2))


@pytest.mark.parametrize("shape", [(1, 1), (3, 301), (9, 999)])
def test_memory_is_what_is_alive_at_once(shape: tuple[int, int]) -> None:
    """Within the eighth by which the pool rounds up, and a few shapes; all widths together are twice as many."""
    exe = compiled(widths())
    assert SIZES in exe.primitive_ops
    machine, x = machine_of(exe), floats(*shape, 16)
    result = machine.run(x)
    np.testing.assert_allclose(result.numpy(), widths_of(x), rtol=1e-5, atol=1e-5)
    idle, used = machine.memory_usage()
    assert used <= 4 * np.prod(shape) * 9 / 8 + 64
    assert idle <= 4 * (32 + 64) * np.prod(shape) * 9 / 8 + 2048


@pytest.mark.parametrize("low", [0, 1])
def test_dimensions_of_size_zero(low: int) -> None:
    machine = machine_of(compiled(widths(low)))
    for shape in ((2, 5), *(() if low else ((0, 5), (3, 0)))):
        x = floats(*shape, 16)
        np.testing.assert_allclose(machine.run(x).numpy(), widths_of(x), rtol=1e-5, atol=1e-5)


def test_tensors_of_fewer_names_lie_in_gaps() -> None:
    """What has no sequence lies where what has one does not."""
    batch, seq = DimVar("batch", 1, 9), DimVar("seq", 1, 99)
    x = relay.var("x", relay.TensorType((batch, seq, 16), F32))
    wide = relay.mean(relay.tanh(relay.exp(x)), axis=1)
    exe = compiled(relay.Function([x], relay.tanh(relay.sigmoid(wide))))
    machine, given = machine_of(exe), floats(4, 40, 16)
    mean = np.tanh(np.exp(given)).mean(1)
    np.testing.assert_allclose(machine.run(given).numpy(), np.tanh(1 / (1 + np.exp(-mean))), rtol=1e-4, atol=1e-5)
    idle, _ = machine.memory_usage()
    assert idle <= 4 * (2 * 4 * 40 * 16) * 9 / 8 + 4 * 4 * 16 + 2048


def test_versions_have_regions_of_their_own() -> None:
    machine = machine_of(compiled(widths(), **{"relay.vm.specialize": "batch=2;batch=3,seq=7:9"}))
    for shape in ((2, 5), (3, 8), (3, 10)):
        x = floats(*shape, 16)
        np.testing.assert_allclose(machine.run(x).numpy(), widths_of(x), rtol=1e-5, atol=1e-5)


def test_results_on_a_device_have_memory_of_their_own() -> None:
    need_gpu()
    machine = machine_of(compiled(widths(), GPU_TARGET), GPU)
    for shape in ((1, 1), (3, 31)):
        x = floats(*shape, 16)
        np.testing.assert_allclose(machine.run(x).numpy(), widths_of(x), rtol=1e-5, atol=1e-5)


def test_damaged_sizes() -> None:
    sizes = tvm.get_global_func(SIZES)
    size, x = tvm.nd.array(np.zeros((), "int64")), tvm.nd.array(floats(2, 3))
    sizes(tvm.nd.array(np.array([[64, 0, 1]], "int64")), x, size)
    assert size.numpy() == 192
    for rows in ([[64, 1, 0]], [[64, 0, 2]], [[64, 0, -1]]):
        with pytest.raises(tvm.TVMError, match="damaged sizes"):
            sizes(tvm.nd.array(np.array(rows, "int64")), x, size)
    with pytest.raises(tvm.TVMError, match="memory"):
        sizes(tvm.nd.array(np.array([[2**62, 0, 1]], "int64")), x, size)
