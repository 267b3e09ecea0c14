"""Random operators on the back end, against their meaning in numpy by the interpreter, which shares no code with it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType, Type
from tilewright.relay import create_executor
from tilewright.relay.expr import Function
from tilewright.relay.transform import InferType
from tilewright.runtime import cpu
from tilewright.testing.backend_kit.backend import Arrays, Backend, Check, assert_near, outputs
from tilewright.testing.backend_kit.operators import FAMILIES

CASES = 4


def checks(backend: Backend, cases: int = CASES, seed: int = 0) -> Iterator[Check]:
    """Yield the checks that apply: one per family."""
    if backend.compiler is None and backend.device is None:
        return
    for name in backend.families or FAMILIES:
        yield Check("numerics", name, computes, backend, (name, cases, seed))


def computes(backend: Backend, family: str, cases: int, seed: int) -> None:
    """Random operators of a family return what numpy returns."""
    for case in range(cases):
        rng = np.random.default_rng([seed, case, zlib.crc32(family.encode())])
        mod = InferType()(IRModule.from_expr(FAMILIES[family](rng)))
        inputs = draw_inputs(mod, rng)
        found = outputs(backend.execute(backend.compile(mod)), inputs)
        what = f"{family}, seed {seed}, case {case}:\n{mod.astext(show_meta_data=False)}"
        assert_near(found, meaning(mod, inputs), backend.tolerance, what)


def draw_inputs(mod: IRModule, rng: np.random.Generator) -> Arrays:
    """Draw inputs of a network: normal numbers, and all values of integer types."""
    main = mod["main"]
    assert isinstance(main, Function)
    return {param.name_hint: _random(param.checked_type, rng) for param in main.params}


def _random(kind: Type, rng: np.random.Generator) -> np.ndarray:
    assert isinstance(kind, TensorType)
    shape, dtype = kind.concrete_shape, kind.dtype
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def meaning(mod: IRModule, inputs: Arrays) -> list[np.ndarray]:
    """A network's outputs by the interpreter."""
    result = create_executor("debug", mod, cpu(), "llvm").evaluate()(**inputs)
    return [field.numpy() for field in (result if isinstance(result, list | tuple) else [result])]
