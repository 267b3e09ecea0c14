"""An estimate of the memory that a program's tensors need at once, before its operators are fused.

Element-wise operators are taken to be fused with those that read them. Inputs, constants and what the function returns
lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.transform.common import concrete_shape, open_children, pattern_of
from tilewright.relay.transform.memory.graph_plan import Lifetime, Placed, plan_arena
from tilewright.relay.transform.memory.row_bands import ROWS, Band
from tilewright.relay.visitor import post_order

_ALIGNMENT = 16


class GraphMemory:
    """The calls of a function in the order in which they run, and what is in memory while each runs."""

    def __init__(self, func: Function) -> None:
        self.order = [e for e in post_order(func.body, open_children) if not isinstance(e, Constant)]
        self.calls = [e for e in self.order if isinstance(e, Call)]
        self.at = {call: i for i, call in enumerate(self.calls)}
        self.users: dict[RelayExpr, list[RelayExpr]] = {}
        for expr in self.order:
            for child in open_children(expr):
                self.users.setdefault(child, []).append(expr)
        self.written: set[Call] = {call for call in self.calls if not self._fused(call)}
        self.end: dict[RelayExpr, int] = {}
        for expr in reversed(self.order):
            readers = self.users.get(expr, ())
            self.end[expr] = max((self._ends(reader) for reader in readers), default=len(self.calls))
        self.steps = self._live()
        self.peak = max(self.steps, default=0)

    def _fused(self, call: Call) -> bool:
        """Whether all that reads a call's result is fused with it."""
        readers = self.users.get(call, ())
        reduced = all(pattern_of(reader) <= OpPattern.COMM_REDUCE for reader in readers)
        return bool(readers) and reduced and pattern_of(call) <= OpPattern.INJECTIVE

    def _ends(self, reader: RelayExpr) -> int:
        """The step after which what ``reader`` reads is no longer needed."""
        if isinstance(reader, Call) and reader in self.written:
            return self.at[reader]
        return self.end[reader]

    def _live(self) -> list[int]:
        """Return for each step the bytes that are in use; 0 of steps that are fused with others."""
        change = [0] * (len(self.calls) + 2)
        for call in self.written:
            if (size := self._bytes(call)) and self.end[call] < len(self.calls):
                change[self.at[call]] += size
                change[self.end[call] + 1] -= size
        live, total = [], 0
        for call in self.calls:
            total += change[self.at[call]]
            live.append(total if call in self.written else 0)
        return live

    @staticmethod
    def _bytes(call: Call) -> int:
        type_ = call.checked_type
        return tensor_bytes(type_) if isinstance(type_, TensorType) and not type_.is_dynamic else 0

    def alone(self) -> list[tuple[int, RelayExpr]]:
        """Return the tensors that nothing else is alive beside, each with its step; -1 is that of the only input."""
        found: list[tuple[int, RelayExpr]] = []
        inputs = [e for e in self.order if isinstance(e, Var)]
        last = -1
        for expr in inputs if len(inputs) == 1 else []:
            found.append((-1, expr))
            last = self._last_reader(expr)
        for i, call in enumerate(self.calls):
            if last <= i and call in self.written and len(inputs) == 1:
                found.append((i, call))
            last = max(last, self._last_reader(call))
        return found

    def _last_reader(self, expr: RelayExpr) -> int:
        """Return the last step that reads a tensor, itself or in a tuple."""
        readers = self.users.get(expr, ())
        steps = (self.at[r] if isinstance(r, Call) else self._last_reader(r) for r in readers)
        return max(steps, default=len(self.calls))

    def peak_with(self, calls: Sequence[Call], start: RelayExpr, bands: Sequence[Band]) -> int:
        """Return the peak where ``calls`` are computed in bands."""
        first, last = self.at[calls[0]], self.at[calls[-1]]
        outside = max((n for i, n in enumerate(self.steps) if not first <= i <= last), default=0)
        held = self._bytes(calls[-1]) + (self._bytes(start) if isinstance(start, Call) else 0)
        return max(outside, held + max(self._of_band(calls, band) for band in bands))

    def planned(self) -> int:
        """Return the bytes of the arena of all tensors: the peak, and the gaps between tensors."""
        inside = (call for call in self.written if self.end[call] < len(self.calls))
        tensors = [Lifetime(self._bytes(call), self.at[call], self.end[call]) for call in inside]
        return plan_arena([[Placed(0, tensor)] for tensor in tensors], _ALIGNMENT).nbytes

    def planned_with(self, calls: Sequence[Call], start: RelayExpr, bands: Sequence[Band]) -> int:
        """Return the bytes of the arena where ``calls`` are computed in bands: with the gaps between tensors."""
        first, last = self.at[calls[0]], self.at[calls[-1]]
        width, longer = last - first + 1, (last - first + 1) * (len(bands) - 1)

        def later(step: int) -> int:
            return step + longer if step >= last else step

        tensors = []
        for call in self.written:
            at, end = self.at[call], self.end[call]
            if end < len(self.calls) and not (first <= at < last):
                begins = first if call is calls[-1] else later(at)
                tensors.append(Lifetime(self._bytes(call), begins, later(end)))
        for number, band in enumerate(bands):
            for call in calls[:-1]:
                if call in self.written:
                    at, end = self.at[call] + number * width, self.end[call] + number * width
                    tensors.append(Lifetime(self._of_rows(call, band), at, end))
        return plan_arena([[Placed(0, tensor)] for tensor in tensors], _ALIGNMENT).nbytes

    def _of_band(self, calls: Sequence[Call], band: Band) -> int:
        """Return the most bytes of a band's tensors, without those of its result."""
        inside = [call for call in calls[:-1] if call in self.written]
        most = 0
        for step in calls:
            if step in self.written:
                at = self.at[step]
                live = (c for c in inside if self.at[c] <= at <= self.end[c])
                most = max(most, sum(self._of_rows(call, band) for call in live))
        return most

    def _of_rows(self, call: Call, band: Band) -> int:
        shape = concrete_shape(call)
        assert shape is not None
        return self._bytes(call) // shape[ROWS] * band.rows[call].extent
