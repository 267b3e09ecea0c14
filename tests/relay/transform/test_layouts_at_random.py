"""Random programs around convolutions: passes that change layouts keep what is computed, by numpy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret

Value = tuple[Any, tuple[int, ...]]  # an expression, and its shape
_MOST = 6000


class Program:
    """Operators on what was made before, every other one on a convolution's result, so that layouts meet."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.params: list[Any] = []
        self.inputs: list[Any] = []
        self.values: list[Value] = []
        for _ in range(2):
            self.given((1, self.rng.choice([3, 8, 16]), 4, self.rng.choice([3, 4])))
        self.given(tuple(self.rng.choice([1, 1, 2, 4]) for _ in range(self.rng.choice([1, 3, 5]))))
        for _ in range(8):
            made = self.rng.choice([self.convolved, self.convolved, self.two, self.two, self.chosen, self.one])()
            if made is not None and 0 < np.prod(made[1]) <= _MOST:
                self.values.append(made)

    def given(self, shape: tuple[int, ...]) -> None:
        self.params.append(relay.var(f"x{len(self.params)}", shape=shape))
        self.inputs.append(self.numbers.standard_normal(shape).astype("float32"))
        self.values.append((self.params[-1], shape))

    def constant(self, *shape: int) -> Any:
        return relay.const(self.numbers.standard_normal(shape).astype("float32"))

    def any(self) -> Value:
        return self.rng.choice(self.values[-4:] if self.rng.random() < 0.7 else self.values)

    def convolved(self) -> Value | None:
        x, shape = self.any()
        if len(shape) != 4:
            return None
        channels = self.rng.choice([1, 3, 8, 16])
        weight = self.constant(channels, shape[1], 1, 1)
        return relay.nn.conv2d(x, weight, kernel_size=(1, 1), channels=channels), (shape[0], channels, *shape[2:])

    def two(self) -> Value | None:
        (a, left), (b, right) = self.any(), self.any()
        try:
            return self.rng.choice([relay.add, relay.maximum, relay.subtract])(a, b), np.broadcast_shapes(left, right)
        except ValueError:
            return None

    def chosen(self) -> Value | None:
        parts = [self.any() for _ in range(3)]
        try:
            shape = np.broadcast_shapes(*(s for _, s in parts))
        except ValueError:
            return None
        (a, _), (b, _), (c, _) = parts
        return relay.where(relay.greater(a, relay.const(0.1)), b, c), shape

    def one(self) -> Value | None:
        x, shape = self.any()
        axis = self.rng.randrange(len(shape))
        rest = shape[:axis] + shape[axis + 1 :]
        match self.rng.randrange(8):
            case 0:
                return relay.expand_dims(x, axis), (*shape[:axis], 1, *shape[axis:])
            case 1 if shape[axis] == 1 and len(shape) > 1:
                return relay.squeeze(x, [axis]), rest
            case 2:
                order = self.rng.sample(range(len(shape)), len(shape))
                return relay.transpose(x, order), tuple(shape[i] for i in order)
            case 3 if len(shape) > 1:
                return relay.max(x, axis), rest
            case 4:
                return relay.mean(x, axis, keepdims=True), (*shape[:axis], 1, *shape[axis + 1 :])
            case 5:
                return relay.concatenate([x, x], axis), (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
            case 6:
                return relay.nn.bias_add(x, self.constant(shape[axis]), axis), shape
            case 7:
                like, other = self.any()
                if len(other) == len(shape) and other[axis] <= shape[axis]:
                    return relay.slice_like(x, like, axes=[axis]), (*shape[:axis], other[axis], *shape[axis + 1 :])
        return None

    def module(self) -> tvm.IRModule:
        body = relay.Tuple([value for value, _ in self.values[-3:]])
        return transform.InferType()(tvm.IRModule.from_expr(relay.Function(self.params, body)))


@pytest.mark.parametrize("seed", range(50))
def test_layouts_change_and_results_do_not(seed: int) -> None:
    program = Program(seed)
    mod = program.module()
    expected = interpret(mod, program.inputs)
    for change in (transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}), transform.AlterOpLayout()):
        with tvm.target.Target("llvm"), tvm.transform.PassContext(opt_level=3):
            changed = change(mod)
        for found, wanted in zip(interpret(changed, program.inputs), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
