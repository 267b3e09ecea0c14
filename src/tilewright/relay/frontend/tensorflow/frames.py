"""Control flow of TensorFlow 1: Switch and Merge around branches, and frames of Enter, NextIteration and Exit.

A Merge whose inputs depend on the two sides of a Switch is a branch. A Merge of an Enter and a NextIteration is a
variable of the loop whose frame the Enter names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import UnsupportedError
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext, described
from tilewright.relay.frontend.tensorflow.graph import Graph, Node, Ref
from tilewright.relay.frontend.tensorflow.loops import chosen, looped, scalar_bool
from tilewright.relay.frontend.tensorflow.proto import TensorflowImportError

if TYPE_CHECKING:
    from tilewright.relay.frontend.tensorflow.importer import Scope

_ENTER, _EXIT, _NEXT = ("Enter", "RefEnter"), ("Exit", "RefExit"), ("NextIteration", "RefNextIteration")
_SWITCH, _MERGE = ("Switch", "RefSwitch"), ("Merge", "RefMerge")
FRAME_OPERATORS = (*_ENTER, *_EXIT, *_NEXT, *_SWITCH, *_MERGE, "LoopCond")
Side = tuple[Ref, int]


@dataclass(frozen=True)
class Variable:
    """A variable of a loop: the nodes that stand for it."""

    merge: str
    initial: Ref
    following: Ref
    switch: str | None
    exits: tuple[str, ...]


class Frames:
    """The loops and branches of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.has_loops = any(n.op in _ENTER for n in graph.nodes.values())
        self._sides: dict[str, frozenset[Side]] = {}

    def of(self, name: str) -> str | None:
        """Return the frame that a node is in; None outside all loops."""
        return self._frames.get(name) if self.has_loops else None

    @cached_property
    def _frames(self) -> dict[str, str | None]:
        """The frame of each node: that of what it reads or waits for, but for Enter and Exit."""
        nodes = self.graph.nodes
        readers: dict[str, list[Node]] = {}
        for node in nodes.values():
            for name in (*(ref.name for ref in node.inputs), *node.controls):
                readers.setdefault(name, []).append(node)
        found: dict[str, str | None] = {n.name: _frame_name(n) for n in nodes.values() if n.op in _ENTER}
        parents = {_frame_name(n): n.inputs[0].name for n in nodes.values() if n.op in _ENTER and n.inputs}
        work = list(found)
        while work:
            name = work.pop()
            for node in readers.get(name, ()):
                frame = self._of_reader(node, found[name], parents, found)
                if node.op not in _ENTER and found.get(node.name) != frame and self._is_deeper(
                    frame, found.get(node.name), parents, found
                ):  # fmt: skip
                    found[node.name] = frame
                    work.append(node.name)
        return found

    @staticmethod
    def _of_reader(
        node: Node, frame: str | None, parents: dict[str, str], found: dict[str, str | None]
    ) -> str | None:  # fmt: skip
        return found.get(parents.get(frame or "", "")) if node.op in _EXIT else frame

    @staticmethod
    def _is_deeper(
        frame: str | None, other: str | None, parents: dict[str, str], found: dict[str, str | None]
    ) -> bool:  # fmt: skip
        def depth(of: str | None) -> int:
            steps = 0
            while of is not None and steps < 64:
                of, steps = found.get(parents.get(of, "")), steps + 1
            return steps

        return depth(frame) > depth(other)

    def loop(self, frame: str) -> tuple[list[Variable], Ref]:
        """Return the variables of a loop, and its condition."""
        nodes = self.graph.nodes
        inside = [n for n in nodes.values() if self._frames.get(n.name) == frame]
        condition = next((n.inputs[0] for n in inside if n.op == "LoopCond"), None)
        if condition is None:
            raise TensorflowImportError(f"the loop {frame!r} has no LoopCond")
        found = []
        exits = [n for n in nodes.values() if n.op in _EXIT]
        for merge in inside:
            if merge.op not in _MERGE or not self.is_variable(merge):
                continue
            initial, following = merge.inputs
            if nodes[initial.name].op not in _ENTER:
                initial, following = following, initial
            switch = next((n.name for n in inside if n.op in _SWITCH and n.inputs[0].name == merge.name), None)
            ends = tuple(e.name for e in exits if e.inputs[0].name == switch)
            found.append(Variable(merge.name, initial, nodes[following.name].inputs[0], switch, ends))
        return found, condition

    def is_variable(self, merge: Node) -> bool:
        """Return whether a Merge stands for a variable of a loop."""
        return any(self.graph.nodes[r.name].op in _NEXT for r in merge.inputs if r.name in self.graph.nodes)

    # ---- branches ----

    def sides(self, ref: Ref) -> frozenset[Side]:
        """Return the conditions, and which side of them, that a result is computed under."""
        stack = [ref.name]
        while stack:
            name = stack[-1]
            node = self.graph.nodes.get(name)
            if name in self._sides or node is None:
                stack.pop()
                continue
            before = self._before(node)
            missing = [n for n in before if n not in self._sides and n in self.graph.nodes and n not in stack]
            if missing:
                stack.extend(missing)
                continue
            self._sides[name] = self._sides_of(node)
            stack.pop()
        return self._through(ref)

    def _before(self, node: Node) -> list[str]:
        """Return what a node reads or waits for; a loop is entered by its initial values alone."""
        if node.op in _NEXT:
            return []
        return [*(r.name for r in node.inputs), *node.controls]

    def _through(self, ref: Ref) -> frozenset[Side]:
        node = self.graph.nodes.get(ref.name)
        found = self._sides.get(ref.name, frozenset())
        if node is None or node.op not in _SWITCH or self._is_of_loop(node):
            return found
        return found | {(self.condition(node.inputs[1]), ref.index)}

    def condition(self, ref: Ref) -> Ref:
        """Return where a condition comes from, behind nodes that hand it on."""
        node = self.graph.nodes.get(ref.name)
        while node is not None and node.op == "Identity":
            ref, node = node.inputs[0], self.graph.nodes.get(node.inputs[0].name)
        return ref

    def _is_of_loop(self, switch: Node) -> bool:
        node = self.graph.nodes.get(switch.inputs[1].name)
        return node is not None and node.op == "LoopCond"

    def _sides_of(self, node: Node) -> frozenset[Side]:
        inputs = [self._through(ref) for ref in node.inputs if node.op not in _NEXT]
        waits = [self._through(Ref(name)) for name in node.controls]
        found = frozenset().union(*inputs, *waits)
        if node.op in _MERGE and not self.is_variable(node) and len(inputs) == 2:
            split = _split(*inputs)
            return frozenset(s for s in found if split is None or s[0] != split[0])
        return found


def _split(a: frozenset[Side], b: frozenset[Side]) -> Side | None:
    """Return the condition that two results are on different sides of, and the side of the first."""
    for ref, side in sorted(a, key=str):
        if (ref, 1 - side) in b:
            return ref, side
    for only, flip in ((a - b, 0), (b - a, 1)):
        if only:
            ref, side = min(only, key=str)
            return ref, side ^ flip
    return None


def _frame_name(node: Node) -> str:
    name = node.attrs.get("frame_name", b"")
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def needs_in_frame(node: Node) -> list[str]:
    """Return the nodes that are converted before a node of control flow."""
    return [node.inputs[0].name] if node.op in (*_ENTER, *_SWITCH, *_NEXT, "LoopCond") else []


def convert_in_frame(scope: Scope, node: Node) -> list[Any]:
    """Return the results of a node of control flow."""
    if node.op in _EXIT:
        return [_exit(scope, node)]
    if node.op in _MERGE:
        return _merged(scope, node)
    value = scope.value(node.inputs[0])
    return [value, value] if node.op in _SWITCH else [value]


def _merged(scope: Scope, node: Node) -> list[Any]:
    frames = scope.frames
    if frames.is_variable(node) or len(node.inputs) != 2:
        raise UnsupportedError(f"{described(node)}: a Merge of {len(node.inputs)} inputs that is part of no branch")
    split = _split(*(frames.sides(ref) for ref in node.inputs))
    if split is None:
        raise UnsupportedError(f"{described(node)}: a Merge whose inputs depend on no condition")
    condition, first_side = split
    ctx = NodeContext(scope.importer, scope, node, [])
    flag = scope.value(condition)
    no, yes = (node.inputs[first_side ^ side] for side in (0, 1))
    (value,) = chosen(ctx, flag, lambda: [scope.value(yes)], lambda: [scope.value(no)])
    index = relay_op.cast(scalar_bool(ctx, flag), "int32")
    return [value, typed(index if first_side == 0 else relay_op.subtract(const(1, "int32"), index))]


def _exit(scope: Scope, node: Node) -> Any:
    """Return the last value of a loop's variable; the loop is converted once."""
    frame = scope.frames.of(node.inputs[0].name)
    if frame is None:
        raise TensorflowImportError(f"{described(node)}: it leaves no loop")
    key = f"/loop/{frame}"
    if key not in scope.results:
        scope.results[key] = [_loop(scope, node, frame)]
    return scope.results[key][0][node.name]


def _loop(scope: Scope, node: Node, frame: str) -> dict[str, Any]:
    variables, condition = scope.frames.loop(frame)
    ctx = NodeContext(scope.importer, scope, node, [])

    def round_of(values: Any, with_switches: bool) -> Scope:
        inner = scope.inside(frame)
        for variable, value in zip(variables, values, strict=True):
            inner.results[variable.merge] = [value, const(0, "int32")]
            if with_switches and variable.switch is not None:
                inner.results[variable.switch] = [value, value]
        return inner

    def test(values: Any) -> Any:
        return round_of(values, False).value(condition)

    def body(values: Any) -> list[Any]:
        inner = round_of(values, True)
        return [inner.value(v.following) for v in variables]

    entered = scope.inside(frame)
    final = looped(ctx, [entered.value(v.initial) for v in variables], test, body)
    return {name: value for v, value in zip(variables, final, strict=True) for name in v.exits}
