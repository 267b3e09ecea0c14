"""Loops of ONNX's reference evaluator, as the specification has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_loop import Loop as _Loop

Array = np.ndarray[Any, Any]


class Loop(_Loop):
    """The evaluator does nothing where there is no condition, and joins rows where it should stack them."""

    def _run(
        self,
        count: Array | None,
        condition: Array | None,
        *args: Array,
        context: Any = None,
        body: Any = None,
        **options: Any,
    ) -> tuple[Array, ...]:
        names, results = self.body.input_names, self.body.output_names
        values = dict(context or {})
        carried = list(args)
        collected: list[list[Array]] = [[] for _ in results[1 + len(carried) :]]
        step, go_on = 0, condition is None or bool(condition)
        while go_on and (count is None or step < count):
            values |= dict(zip(names, [np.array(step, "int64"), np.array(True), *carried], strict=True))
            found = self._run_body(values, attributes=options.get("attributes"), bindings=options.get("bindings"))
            go_on, carried = bool(found[0]), list(found[1 : 1 + len(carried)])
            for rows, row in zip(collected, found[1 + len(carried) :], strict=True):
                rows.append(row)
            step += 1
        if not step and collected:
            raise NotImplementedError("what no round collects has a shape that only inference knows")
        return (*carried, *(np.stack(rows) for rows in collected))


class Scan(OpRun):
    """The evaluator goes forwards along first axes only."""

    def need_context(self) -> bool:
        """The body may read what is around it."""
        return True

    def _run(
        self, *args: Array, context: Any = None, body: Any = None, num_scan_inputs: int = 1,
        scan_input_axes: Any = None, scan_input_directions: Any = None, scan_output_axes: Any = None,
        scan_output_directions: Any = None, **options: Any,
    ) -> tuple[Array, ...]:  # fmt: skip
        states, scanned = list(args[:-num_scan_inputs]), args[-num_scan_inputs:]
        rows = [np.moveaxis(x, axis, 0) for x, axis in zip(scanned, scan_input_axes or [0] * len(scanned), strict=True)]
        rows = [x[::-1] if back else x for x, back in zip(rows, scan_input_directions or [0] * len(rows), strict=True)]
        collected: list[list[Array]] = [[] for _ in self.body.output_names[len(states) :]]
        for step in range(len(rows[0])):
            inputs = dict(zip(self.body.input_names, [*states, *(x[step] for x in rows)], strict=True))
            found = self._run_body((context or {}) | inputs, bindings=options.get("bindings"))
            states = list(found[: len(states)])
            for made, row in zip(collected, found[len(states) :], strict=True):
                made.append(row)
        if not len(rows[0]) and collected:
            raise NotImplementedError("what no round collects has a shape that only inference knows")
        directions, axes = (v or [0] * len(collected) for v in (scan_output_directions, scan_output_axes))
        outputs = [
            np.stack(made[::-1] if back else made, axis=axis)
            for made, back, axis in zip(collected, directions, axes, strict=True)
        ]
        return (*states, *outputs)
