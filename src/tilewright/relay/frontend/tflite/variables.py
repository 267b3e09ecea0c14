"""Resource variables: what runs write becomes state of the module, and what only CALL_ONCE writes a constant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Var
from tilewright.relay.frontend.tflite.context import OperatorContext, typed
from tilewright.relay.frontend.tflite.model import Model, Operator, Subgraph
from tilewright.relay.frontend.tflite.registry import converter

Array = np.ndarray[Any, Any]


def _name(handle: Operator) -> str:
    """Return the name of a variable by the options of its VAR_HANDLE."""
    parts = [getattr(handle.options, part, None) or "" for part in ("container", "shared_name")]
    return "/".join(part for part in parts if part) or "variable"


def _handles(graph: Subgraph) -> dict[int, str]:
    """Return the tensors of a subgraph that are handles, and the names of their variables."""
    return {op.outputs[0]: _name(op) for op in graph.operators if op.name == "VAR_HANDLE" and op.outputs}


def _written(model: Model) -> set[str]:
    """Return the variables that a run writes: not those that CALL_ONCE's subgraphs alone write."""
    calls = [op for graph in model.subgraphs for op in graph.operators if op.name == "CALL_ONCE"]
    once = {int(getattr(op.options, "subgraph", -1)) for op in calls}
    found: set[str] = set()
    for number, graph in enumerate(model.subgraphs):
        if number not in once:
            handles = _handles(graph)
            assigned = [op.inputs[0] for op in graph.operators if op.name == "ASSIGN_VARIABLE" and op.inputs]
            found.update(handles[i] for i in assigned if i in handles)
    return found


@dataclass
class Variables:
    """The variables of a model while it is imported.

    Attributes:
        first: values that CALL_ONCE's subgraph assigns.
        inputs: of variables that runs write, the parameter that holds the value from the run before.
        now: the values of variables at the current operator.
        once: whether the current operator is one of CALL_ONCE's subgraph.
        branches: how many branches and loops are around the current operator.
    """

    written: set[str] = field(default_factory=set)
    first: dict[str, Array] = field(default_factory=dict)
    inputs: dict[str, Var] = field(default_factory=dict)
    now: dict[str, RelayExpr] = field(default_factory=dict)
    once: bool = False
    branches: int = 0

    @classmethod
    def of(cls, model: Model) -> Variables:
        """Return the variables of a model before its first operator."""
        return cls(_written(model))

    @contextmanager
    def in_branch(self) -> Iterator[None]:
        """Convert what may not run, or not once."""
        self.branches += 1
        yield
        self.branches -= 1

    def state(self) -> dict[str, tuple[Var, RelayExpr]]:
        """Return the variables that outlive a run: the parameter of each, and its value at the end."""
        return {name: (var, self.now.get(name, var)) for name, var in self.inputs.items()}


def _variable(ctx: OperatorContext) -> str:
    handles = _handles(ctx.importer.graph)
    index = ctx.tensor(0).index
    if index not in handles:
        ctx.unsupported("a variable whose handle is not made by a VAR_HANDLE of the same subgraph")
    return handles[index]


@converter("VAR_HANDLE")
def convert_var_handle(ctx: OperatorContext) -> Sequence[None]:
    """No tensor: the operators that take the handle know the variable by its name."""
    return [None]


@converter("READ_VARIABLE")
def convert_read_variable(ctx: OperatorContext) -> RelayExpr:
    """Return the value that was assigned last: in this run, in the one before, or by CALL_ONCE."""
    name, variables = _variable(ctx), ctx.importer.params.resources
    if name in variables.now:
        return variables.now[name]
    if name not in variables.first:
        ctx.fail(f"the variable {name!r} is read before a value is assigned to it")
    value = variables.first[name]
    if name not in variables.written:
        variables.now[name] = ctx.importer.params.add(name, value)
    else:
        unique = ctx.importer.params.hold(name, value)
        variables.inputs[name] = Var(unique, TensorType(value.shape, str(value.dtype)))
        variables.now[name] = typed(variables.inputs[name])
    return variables.now[name]


@converter("ASSIGN_VARIABLE")
def convert_assign_variable(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Give a variable another value."""
    name, variables = _variable(ctx), ctx.importer.params.resources
    if variables.branches:
        raise UnsupportedError(f"{ctx.place}: the variable {name!r} is assigned in a branch or loop; assign it outside")
    if variables.once:
        value = ctx.constant_or_none(1)
        if value is None:
            ctx.unsupported(f"a first value of the variable {name!r} that is no constant")
        variables.first[name] = value
        return []
    given = ctx.plain(1)
    held = variables.first.get(name)
    if held is not None and name not in variables.inputs:
        convert_read_variable(ctx)  # the next run begins with this value, so that it is state
    if held is not None and ctx.tensor_type(given) != ctx.tensor_type(variables.inputs[name]):
        found, wanted = ctx.tensor_type(given), ctx.tensor_type(variables.inputs[name])
        ctx.unsupported(f"the variable {name!r}, a {wanted}, given a {found},")
    variables.now[name] = given
    return []


@converter("CALL_ONCE")
def convert_call_once(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Note the first values of variables, which a subgraph assigns before the first run."""
    variables = ctx.importer.params.resources
    if variables.now or variables.branches:
        ctx.unsupported("a CALL_ONCE behind other uses of variables, or in a branch or loop,")
    variables.once = True
    ctx.subgraph(int(ctx.option("subgraph")), [])
    variables.once = False
    return []
