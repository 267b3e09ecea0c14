"""Runs one operator call three ways: its type relation, its numpy meaning, and its compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.op import Op
from tilewright.relay.type_infer import infer_expr

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """``build`` of variables for ``inputs`` should give ``expected`` (an array, or a tuple of them)."""

    name: str
    build: Callable[..., Any]
    inputs: tuple[Array, ...]
    expected: Any
    rtol: float = 1e-5
    atol: float = 1e-5
    kernel: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def results(self) -> list[Array]:
        """The expected arrays."""
        many = isinstance(self.expected, (tuple, list))
        return [np.asarray(e) for e in (self.expected if many else (self.expected,))]


def case(name: str, build: Callable[..., Any], inputs: Sequence[Any], expected: Any, **options: Any) -> Case:
    """A case; inputs and expected values may be anything that numpy takes."""
    return Case(name, build, tuple(np.asarray(i) for i in inputs), expected, **options)


def random(*shape: int, seed: int = 0) -> Array:
    """float32 numbers in [-1, 1), the same for a shape and seed."""
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype("float32")


def integers(low: int, high: int, *shape: int, dtype: str = "int32", seed: int = 0) -> Array:
    """Integers in [low, high)."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def typed(item: Case) -> tuple[list[Any], Any]:
    """Variables, and the typed expression over them."""
    variables = [relay.var(f"x{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(item.inputs)]
    expr = item.build(*variables)
    return variables, infer_expr(expr.astuple() if isinstance(expr, relay.TupleWrapper) else expr)


def check_type(item: Case) -> None:
    """The inferred type has the expected shapes and dtypes."""
    found = typed(item)[1].checked_type
    fields = found.fields if isinstance(found, relay.TupleType) else (found,)
    assert [(t.concrete_shape, t.dtype) for t in fields] == [(e.shape, str(e.dtype)) for e in item.results]


def evaluate(expr: Any, values: dict[Any, Any]) -> Any:
    """The value of a typed expression by its operators' ``evaluate``."""
    found: dict[Any, Any] = dict(values)

    def visit(node: Any) -> None:
        if node in found or isinstance(node, Op):
            return
        if isinstance(node, relay.Constant):
            found[node] = node.data.numpy()
        elif isinstance(node, relay.Tuple):
            found[node] = [found[f] for f in node.fields]
        elif isinstance(node, relay.TupleGetItem):
            found[node] = found[node.tuple_value][node.index]
        elif isinstance(node, relay.Call):
            args = [v for a in node.args for v in (found[a] if isinstance(found[a], list) else [found[a]])]
            outs = node.op.get_attr("FEvaluate")(node.attrs, args)
            found[node] = outs if isinstance(node.checked_type, relay.TupleType) else outs[0]

    relay.analysis.post_order_visit(expr, visit)
    return found[expr]


def check_meaning(item: Case) -> None:
    """``evaluate`` gives the expected values, in the inferred shapes and dtypes."""
    variables, expr = typed(item)
    found = evaluate(expr, dict(zip(variables, item.inputs, strict=True)))
    for have, want in zip(found if isinstance(found, list) else [found], item.results, strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=item.rtol, atol=item.atol)


def check_kernels(items: Sequence[Case], target: str = "llvm", device: Any = None) -> None:
    """One module with all the calls, compiled, gives the expected values on ``device``, the CPU by default."""
    items = [i for i in items if i.kernel and all(e.size for e in i.results)]
    params: list[Any] = []
    fields: list[Any] = []
    values: dict[str, Array] = {}
    for k, item in enumerate(items):
        variables = [relay.var(f"p{k}_{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(item.inputs)]
        params += variables
        values |= {v.name_hint: a for v, a in zip(variables, item.inputs, strict=True)}
        expr = item.build(*variables)
        fields += [expr[i] for i in range(len(item.results))] if len(item.results) > 1 else [expr]
    mod = tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(fields)))
    with tvm.transform.PassContext(opt_level=1):
        lib = relay.build(mod, target)
    run = graph_executor.GraphModule(lib["default"](device or tvm.cpu(0)))
    run.set_input(**values)
    run.run()
    position = 0
    for item in items:
        for want in item.results:
            have = run.get_output(position).numpy()
            position += 1
            np.testing.assert_allclose(have, want, rtol=max(item.rtol, 1e-5), atol=item.atol, err_msg=item.name)
