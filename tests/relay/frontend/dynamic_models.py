"""Models in ONNX's text form, compiled once and run at several shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright import relay, runtime

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def model_of(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\ng {text}')


def machine_of(model: onnx.ModelProto, dims: Mapping[str, Any] | None = None, **options: Any) -> Any:
    mod, params = relay.frontend.from_onnx(model, dims=dims, **options)
    return runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())


def outputs_of(machine: Any, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    found = machine.run(**inputs)
    return [v.numpy() for v in found] if isinstance(found, runtime.container.ADT) else [found.numpy()]


Engine = Callable[[onnx.ModelProto], Callable[[None, dict[str, np.ndarray]], Sequence[np.ndarray]]]


def reference(model: onnx.ModelProto) -> Callable[[None, dict[str, np.ndarray]], Sequence[np.ndarray]]:
    """ONNX's reference evaluator."""
    return ReferenceEvaluator(model).run


def check(
    text: str,
    *runs: Mapping[str, np.ndarray],
    dims: Mapping[str, Any] | None = None,
    opset: int = 18,
    engine: Engine = reference,
) -> None:
    """The model's program gives what ``engine`` does, to 1e-4, for each of ``runs``."""
    model = model_of(text, opset)
    machine, run = machine_of(model, dims), engine(model)
    for inputs in runs:
        expected = run(None, dict(inputs))
        for value, wanted in zip(outputs_of(machine, inputs), expected, strict=True):
            assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-4)


def numbers(count: int) -> str:
    return ", ".join(map(str, RNG.standard_normal(count).round(2)))
