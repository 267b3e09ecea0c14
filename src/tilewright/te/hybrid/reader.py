"""Reading a hybrid script into an operation.

Statements are walked as those of TVMScript are (``script.parser``). What differs:

- A name assigned once, to a number computed without memory reads, stands for that number. Any other number lives in
  memory until the block of its first assignment ends.
- ``const_range`` and conditions on known values are evaluated here: a loop over them is unrolled.
- ``output_tensor`` and ``allocate`` make tensors; the script returns its outputs. Scripts may call scripts.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.arith.analyzer import simplify
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, BufferLoad, decl_buffer
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.script.parser import Building, Conditions, Loop, Reader
from tilewright.te.hybrid.runtime import SYMBOLS, Memory
from tilewright.te.operation import HybridOp, as_attrs
from tilewright.te.tensor import Tensor
from tilewright.tir import op as tir
from tilewright.tir.expr import IterVar, IterVarType, Range
from tilewright.tir.stmt import AttrStmt, BufferRealize, BufferStore, For, ForKind, Stmt
from tilewright.tir.visitor import post_order_visit, stmt_vars, substitute

_AXIS_TYPES = {
    ForKind.SERIAL: IterVarType.DataPar,
    ForKind.PARALLEL: IterVarType.Parallelized,
    ForKind.VECTORIZED: IterVarType.Vectorized,
    ForKind.UNROLLED: IterVarType.Unrolled,
}


class Place:
    """A tensor in a script, or with ``indices`` a part of it: ``a[i, j]`` and ``a[i][j]`` read an element."""

    def __init__(self, buffer: Buffer, indices: tuple[Any, ...] = ()) -> None:
        self.buffer, self.indices = buffer, indices
        self.shape, self.dtype = buffer.shape[len(indices) :], buffer.dtype

    def __getitem__(self, index: Any) -> Any:
        indices = (*self.indices, *(index if isinstance(index, tuple) else (index,)))
        if len(indices) > len(self.buffer.shape):
            raise TilewrightError(
                f"{self.buffer.name} has {len(self.buffer.shape)} dimensions and is indexed with {len(indices)}"
            )
        if len(indices) == len(self.buffer.shape):
            return BufferLoad(self.buffer, indices)
        return Place(self.buffer, indices)

    def __len__(self) -> int:
        size = self.shape[0]
        if not isinstance(size, IntImm):
            raise TilewrightError(f"len({self.buffer.name}) is not known while compiling; write shape[0]")
        return size.value


class Table(tuple[Any, ...]):
    """A list that is an argument; ``b[i, j]`` of a list of lists is ``b[i][j]``."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, tuple):
            return super().__getitem__(index)
        found: Any = self
        for one in index:
            found = found[one]
        return found


class Inlined:
    """The result of calling another script: its statement and its outputs."""

    def __init__(self, body: Stmt, outputs: Sequence[Place]) -> None:
        self.body, self.outputs = body, outputs


class _Names(Conditions):
    """Rewrites ``x if c else y`` to a call, so that the condition may be an expression."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        cases: list[ast.expr] = [ast.Lambda(nothing, node.body), ast.Lambda(nothing, node.orelse)]
        return ast.copy_location(ast.Call(ast.Name("__choose", ast.Load()), [node.test, *cases], []), node)


def _choose(condition: Any, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    known = _known(condition)
    if known is not None:
        return first() if known else second()
    return tir.if_then_else(condition, *ops.match_dtypes(first(), second()))


def _known(condition: Any) -> bool | None:
    """Return the truth of a compile-time condition; None for others."""
    if isinstance(condition, PrimExpr) and not isinstance(condition, IntImm):
        return None
    return bool(condition)


def _reads(value: PrimExpr) -> bool:
    found: list[PrimExpr] = []
    post_order_visit(value, lambda e: found.append(e) if isinstance(e, BufferLoad) else None)
    return bool(found)


class HybridReader(Reader):
    """Reads one call of a script; ``names`` are those around it, ``arguments`` its parameters'."""

    conditions = _Names

    def __init__(self, name: str, names: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        super().__init__(name, {**names, **SYMBOLS, **arguments, "__builtins__": {}}, Building())
        self.names["__choose"] = _choose
        self.outputs: dict[str, Place] = {}
        self.returned: list[Place] = []
        self.cells: set[Buffer] = set()
        self.assigned: Counter[str] = Counter()
        self.threads: dict[str, IterVar] = {}  # of loops over bind, by their tags

    def read(self, definition: ast.FunctionDef) -> Inlined:
        """Return the statement and the outputs of the function."""
        for node in ast.walk(definition):
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AugAssign) else targets
            self.assigned.update(t.id for t in targets if isinstance(t, ast.Name))
        self.block(definition.body)
        if not self.returned:
            raise self.fail(definition, "a script returns the tensors that output_tensor gave")
        missing = [name for name, place in self.outputs.items() if all(place is not r for r in self.returned)]
        if missing:
            raise self.fail(definition, f"{', '.join(missing)} is an output_tensor, but not returned; use allocate")
        return Inlined(self._on_threads(self.builder.get()), self.returned)

    def on_Assign(self, node: ast.Assign) -> None:
        """Assign a tensor, a number, or an element."""
        if len(node.targets) != 1:
            raise self.fail(node, "one name is given at a time")
        (target,) = node.targets
        value = self.value(node.value)
        if isinstance(target, ast.Subscript):
            self.store(target, value)
        elif isinstance(value, Inlined):
            self._take(target, value)
        elif not isinstance(target, ast.Name):
            raise self.fail(target, f"a name is expected here, not {ast.unparse(target)}")
        elif isinstance(value, Memory):
            self._declare(target.id, value)
        else:
            self._number(target, value)

    def _declare(self, name: str, memory: Memory) -> None:
        place = Place(decl_buffer(memory.shape, memory.dtype, name, scope="" if memory.is_output else memory.scope))
        if memory.is_output:
            self.outputs[name] = place
        else:
            self._realize(place.buffer)
        self.names[name] = place

    def _realize(self, buffer: Buffer) -> None:
        region = [Range(0, extent) for extent in buffer.shape]
        self.builder.emit(lambda body: BufferRealize(buffer, region, True, body))

    def _take(self, target: ast.expr, called: Inlined) -> None:
        """Store the outputs of another script in buffers of this one."""
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if len(targets) != len(called.outputs):
            raise self.fail(
                target, f"the script gives {len(called.outputs)} tensors, and {len(targets)} names take them"
            )
        for one, place in zip(targets, called.outputs, strict=True):
            self._realize(place.buffer)
            if not isinstance(one, ast.Name):
                raise self.fail(one, f"a name is expected here, not {ast.unparse(one)}")
            self.names[one.id] = place
        self.builder.emit(called.body)

    def _number(self, target: ast.Name, value: Any) -> None:
        known = self.names.get(target.id)
        if isinstance(known, BufferLoad) and known.buffer in self.cells:
            self._set(known.buffer, value)
            return
        number = isinstance(value, (int, float, PrimExpr))
        fixed = self.assigned[target.id] == 1 and not (isinstance(value, PrimExpr) and _reads(value))
        if fixed or not number:
            self.names[target.id] = value
            return
        value = ops.as_expr(value)
        buffer = decl_buffer((1,), value.dtype, target.id, scope="local")
        self._realize(buffer)
        self.cells.add(buffer)
        self.names[target.id] = BufferLoad(buffer, [0])
        self._set(buffer, value)

    def _set(self, buffer: Buffer, value: Any) -> None:
        self.builder.emit(BufferStore(buffer, ops.cast(buffer.dtype, ops.as_expr(value)), [0]))

    def on_AugAssign(self, node: ast.AugAssign) -> None:
        """Read ``x += y`` of a number or an element."""
        target: Any = node.target
        loaded = ast.copy_location(type(target)(**{**dict(ast.iter_fields(target)), "ctx": ast.Load()}), target)
        value = self.value(ast.copy_location(ast.BinOp(loaded, node.op, node.value), node))
        if isinstance(target, ast.Subscript):
            self.store(target, value)
        elif isinstance(target, ast.Name):
            self._number(target, value)
        else:
            raise self.fail(target, "only numbers and elements of tensors can be changed")

    def store(self, target: ast.Subscript, value: Any) -> None:
        """Store a value in an element of a tensor, converted to its dtype."""
        place, index = self.value(target.value), self.value(target.slice)
        if not isinstance(place, Place):
            raise self.fail(target, f"{ast.unparse(target.value)} is no tensor")
        loaded = place[index]
        if not isinstance(loaded, BufferLoad):
            raise self.fail(target, f"{ast.unparse(target)} is no element: {place.buffer.name} has more dimensions")
        stored = ops.cast(place.dtype, ops.as_expr(value))
        self.builder.emit(BufferStore(place.buffer, stored, loaded.indices))

    def on_For(self, node: ast.For) -> None:
        """Read a loop; one over ``const_range`` is unrolled."""
        values = self.value(node.iter)
        if not isinstance(values, range):
            super().on_For(node)
            return
        if not isinstance(node.target, ast.Name):
            raise self.fail(node, "a loop has one variable")
        outside = dict(self.names)
        for value in values:
            self.names[node.target.id] = value
            self.builder.emit(self.inner(node.body))
        self.names.clear()
        self.names.update(outside)

    def loop(self, loop: Loop, var: Var, low: PrimExpr, extent: PrimExpr, body: Stmt) -> Stmt:
        """Return a loop; of one over ``bind`` the body, in which each thread does its part."""
        if not loop.thread:
            return super().loop(loop, var, low, extent, body)
        axis = self.threads.get(loop.thread)
        if axis is None:
            axis = self.threads[loop.thread] = IterVar(Range(0, extent), var, IterVar.ThreadIndex, loop.thread)
            return body
        assert axis.dom is not None
        if not ops.is_const_int(simplify(axis.dom.extent - extent), 0):
            raise TilewrightError(
                f"{self.name}: a loop runs along {extent} threads of {loop.thread}, and an earlier one along "
                f"{axis.dom.extent}; use the larger number twice, and an if"
            )
        return substitute(body, {var: axis.var})

    def _on_threads(self, body: Stmt) -> Stmt:
        """Return the script on the threads of its ``bind`` loops: they run all of it, inside of the global memory."""
        if not self.threads:
            return body
        if isinstance(body, BufferRealize) and body.buffer.scope == "global":
            return BufferRealize(body.buffer, body.bounds, body.condition, self._on_threads(body.body))
        inside = {loop.loop_var for loop in _loops(body)}
        for axis in reversed(self.threads.values()):
            assert axis.dom is not None
            if not inside.isdisjoint(stmt_vars(axis.dom.extent)):
                raise TilewrightError(f"{self.name}: the number of threads {axis.dom.extent} depends on a loop")
            body = AttrStmt(axis, "thread_extent", axis.dom.extent, body)
        return body

    def on_If(self, node: ast.If) -> None:
        """Read a condition; a known one leaves one branch."""
        known = _known(self.value(node.test))
        if known is None:
            super().on_If(node)
        else:
            self.builder.emit(self.inner(node.body if known else node.orelse))

    def on_While(self, node: ast.While) -> None:
        """Refuse ``while``, which is not part of the language."""
        raise self.fail(node, "a script has for loops, whose ends are known before they run, and no while")

    def on_Return(self, node: ast.Return) -> None:
        """Read the outputs."""
        value = None if node.value is None else self.value(node.value)
        for place in value if isinstance(value, tuple) else (value,):
            if not any(place is out for out in self.outputs.values()):
                raise self.fail(node, "a script returns the tensors that output_tensor gave")
            self.returned.append(place)


def read_script(
    definition: ast.FunctionDef, names: Mapping[str, Any], arguments: Sequence[Any]
) -> tuple[Inlined, dict[Tensor, Buffer]]:
    """Read a script called with tensors, lists of tensors and numbers; also return the buffers of the tensors."""
    params = [arg.arg for arg in definition.args.args]
    if len(params) != len(arguments):
        raise TilewrightError(f"{definition.name} takes {len(params)} arguments, got {len(arguments)}")
    buffers: dict[Tensor, Buffer] = {}

    def as_place(value: Any) -> Any:
        if isinstance(value, Tensor):
            if value not in buffers:
                buffers[value] = decl_buffer(value.shape, value.dtype, value.op.name)
            return Place(buffers[value])
        return Table(map(as_place, value)) if isinstance(value, (list, tuple)) else value

    reader = HybridReader(definition.name, names, dict(zip(params, map(as_place, arguments), strict=True)))
    return reader.read(copy.deepcopy(definition)), buffers


def hybrid_op(definition: ast.FunctionDef, names: Mapping[str, Any], arguments: Sequence[Any]) -> Any:
    """Return the outputs of the operation that the script computes: a tensor, or a list of them."""
    found, buffers = read_script(definition, names, arguments)
    outputs = tuple(place.buffer for place in found.outputs)
    op = HybridOp(
        definition.name, "", as_attrs(None), tuple(buffers), tuple(buffers.values()), outputs, found.body,
        loop_axes(found.body),
    )  # fmt: skip
    return op.output(0) if op.num_outputs == 1 else list(op.outputs)


def loop_axes(body: Stmt) -> tuple[IterVar, ...]:
    """Create an axis for each loop, outer ones first, in the order of the text."""
    return tuple(
        IterVar(
            Range.from_min_extent(s.min, s.extent),
            s.loop_var,
            _AXIS_TYPES[s.kind],
        )
        for s in _loops(body)
    )


def _loops(body: Stmt) -> list[For]:
    found: list[For] = []
    stack: list[Stmt] = [body]
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, For):
            found.append(stmt)
        parts: list[Stmt] = []
        for _, child in stmt.field_values():
            parts += [c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, Stmt)]
        stack += reversed(parts)
    return found
