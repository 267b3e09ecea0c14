"""The page about a compiled model: its graph, kernels, memory, passes and code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.doctor.diagnosis import least_seconds
from tilewright.doctor.peak import Machine
from tilewright.doctor.work import Kernel, kernels_of
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.relay.backend.progress import BuildReport
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import COMPILER, GLOBAL_SYMBOL
from tilewright.relay.transform.common import open_children
from tilewright.relay.visitor import post_order
from tilewright.report.code import code_of
from tilewright.report.memory import peak, tenancies
from tilewright.report.page import Section, table, write_page
from tilewright.report.passes import PassRecorder
from tilewright.runtime.device import Device

_MOST_CODE = 12  # kernels whose code is shown, those with most work
_PREFIX = "tvmgen_default_"

_BODIES = {
    "graph": ("Graph", '<p class="note keys">Click or Enter folds and unfolds; arrow keys move; what a kernel reads is '
              'green, what reads it is yellow.</p><div id="tree" class="tree" role="tree" tabindex="0" '
              'aria-label="Graph"></div>'),
    "kernels": ("Kernels", '<div id="kernel-table"></div>'),
    "memory": ("Memory", '<div id="memory-plot"></div>'),
    "passes": ("Passes", '<div id="pass-list"></div>'),
    "code": ("Code", '<p><select id="code-choice" aria-label="Kernel"></select> <span class="note keys">A click on a '
             'line marks the lines that belong to it.</span></p><div id="code-sides" class="sides"></div>'),
}  # fmt: skip


@dataclass
class Measured:
    """A measured run: seconds by node of the graph, the number of threads, and the machine's limits if known."""

    seconds: Mapping[str, float]
    threads: int
    machine: Machine | None = None


@dataclass
class ModelPage:
    """A page in the making: what is known of a model is added, then ``write`` writes it."""

    title: str
    summary: list[tuple[str, str]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    decisions: list[tuple[str, str, str]] = field(default_factory=list)

    def add_passes(self, recorder: PassRecorder) -> None:
        """Add the passes of the build."""
        self.data["passes"] = [
            {
                "name": r.name, "seconds": r.seconds, "added": r.added, "removed": r.removed, "depth": r.depth,
                "hunks": r.hunks, "dropped": r.dropped, "unread": r.unread,
            }
            for r in recorder.records
        ]  # fmt: skip

    def add_build(self, factory: Any, report: BuildReport, run: Measured | None = None) -> None:
        """Add what a build made: graph, kernels, memory and code, as far as its executor has them."""
        self._add_decisions(report)
        text = getattr(factory, "graph_json", None)
        if not text:
            return
        kernels = {kernel.name: kernel for kernel in kernels_of(factory)}
        metadata = factory.function_metadata
        self.add_graph(json.loads(text), run, kernels, _regions(factory.ir_mod), metadata)
        self._add_kernels(list(kernels.values()), run, report.schedule_reasons)
        heavy = sorted(kernels.values(), key=self._weight)[:_MOST_CODE]
        self.data["code"] = code_of([kernel.name for kernel in heavy], metadata)

    def add_graph(
        self,
        graph: Mapping[str, Any],
        run: Measured | None = None,
        kernels: Mapping[str, Kernel] | None = None,
        regions: Mapping[str, Function] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add the graph of the executor, and its memory over time.

        Args:
            graph: the graph JSON.
            run: times of its nodes.
            kernels: by function, where the compiler is at hand.
            regions: the functions of external compilers by symbol.
            metadata: the Relay functions of the kernels (``FunctionInfo``).
        """
        kernels, regions, metadata = kernels or {}, regions or {}, metadata or {}
        sources = (graph.get("metadata") or {}).get("sources", {})
        rows, shapes = graph["node_row_ptr"], graph["attrs"]["shape"][1]
        dtypes, devices = graph["attrs"]["dltype"][1], graph["attrs"].get("device_index", [None, []])[1]
        calls = [i for i, node in enumerate(graph["nodes"]) if node["op"] != "null"]
        place = {number: index for index, number in enumerate(calls)}
        self.data["nodes"] = []
        for number in calls:
            node = graph["nodes"][number]
            symbol = node["attrs"]["func_name"]
            function = regions.get(symbol) or _relay_of(metadata.get(symbol))
            device = _device(devices[rows[number]]) if devices else "cpu"
            names = list(sources.get(node["name"], ()))
            found = {
                "name": node["name"].removeprefix(_PREFIX), "kernel": symbol, "sources": names, "group": _group(names),
                "inputs": sorted({place[i] for i, *_ in node["inputs"] if i in place}),
                "shape": f"{dtypes[rows[number]]} {'x'.join(map(str, shapes[rows[number]])) or 'scalar'}",
                "device": device, "region": str(COMPILER.of(regions[symbol])) if symbol in regions else "",
                "operators": _operators(function) if function is not None else [],
                "implementation": kernels[symbol].implementation if symbol in kernels else "",
            }  # fmt: skip
            if run is not None:
                found["ms"] = 1e3 * run.seconds.get(node["name"], 0.0)
            self.data["nodes"].append(found)
        self._add_memory(graph, place)

    def _add_memory(self, graph: Mapping[str, Any], place: Mapping[int, int]) -> None:
        tenants = tenancies(graph)
        steps = len(place)
        self.data["memory"] = {
            "steps": steps,
            "peak": [peak(tenants)[0], place.get(peak(tenants)[1], steps)],
            "tensors": [
                [t.name.removeprefix(_PREFIX), place.get(t.first, 0), place.get(t.last, steps), t.offset, t.nbytes,
                 _device(t.device)]
                for t in tenants
            ],
        }  # fmt: skip

    def _add_kernels(self, kernels: Sequence[Kernel], run: Measured | None, reasons: Mapping[str, str]) -> None:
        spent: dict[str, float] = {}
        total = 0.0
        if run is not None:
            for node in self.data["nodes"]:
                spent[node["kernel"]] = spent.get(node["kernel"], 0.0) + 1e-3 * node["ms"]
            total = sum(spent.values())
        lines = []
        for kernel in kernels:
            line: dict[str, Any] = {
                "name": kernel.name.removeprefix(_PREFIX), "kernel": kernel.name, "operators": kernel.operators,
                "shape": kernel.shape, "calls": kernel.calls, "flops": kernel.flops, "bytes": kernel.bytes,
                "implementation": kernel.implementation, "schedule": kernel.schedule,
                "reason": reasons.get(kernel.name, ""),
            }  # fmt: skip
            if run is not None:
                seconds = spent.get(kernel.name, 0.0)
                line |= {"ms": 1e3 * seconds, "share": seconds / total if total else None}
                if run.machine is not None and seconds:
                    least, _ = least_seconds(kernel, run.threads, run.machine)
                    line["roofline"] = min(1.0, kernel.calls * least / seconds)
            lines.append(line)
        self.data["kernels"] = sorted(lines, key=lambda line: (-line.get("ms", 0.0), -line["flops"]))

    def _weight(self, kernel: Kernel) -> tuple[float, ...]:
        """Order kernels: those that take most time first, or have most work."""
        times = {line["kernel"]: line.get("ms", 0.0) for line in self.data["kernels"]}
        return -times.get(kernel.name, 0.0), -kernel.flops * kernel.calls, -kernel.bytes * kernel.calls

    def _add_decisions(self, report: BuildReport) -> None:
        """Add why operators stay in float32, weights in their precision, and kernels have their schedules."""
        for decision in report.quantized:
            if decision.reason:
                self.decisions.append((decision.node, decision.operator, f"in float32: {decision.reason}"))
        for weight in report.halved:
            if weight.reason:
                self.decisions.append((weight.node, "weights", f"in {weight.dtype}: {weight.reason}"))
        for reason, number in Counter(filter(None, report.schedule_reasons.values())).items():
            self.decisions.append((f"{number} kernel{'s' if number > 1 else ''}", "schedule", reason))

    def write(self, path: Path) -> None:
        """Write the page."""
        parts = {"graph": "nodes", "kernels": "kernels", "memory": "memory", "passes": "passes", "code": "code"}
        sections = [Section(name, *_BODIES[name]) for name, key in parts.items() if self.data.get(key)]
        if self.decisions:
            sections.append(Section("why", "Why", table(("node", "what", "why"), self.decisions)))
        known = {key: value for key, value in self.data.items() if value}
        write_page(path, self.title, sections, self.summary, known)


def _regions(mod: IRModule | None) -> dict[str, Function]:
    """Return the functions of a module that external compilers take, by symbol."""
    functions = mod.functions.values() if mod is not None else ()
    return {str(GLOBAL_SYMBOL.of(f)): f for f in functions if isinstance(f, Function) and COMPILER.has(f)}


def _device(number: int) -> str:
    return str(Device(number, 0)).split("(")[0]


def _relay_of(info: Any) -> Function | None:
    found = list(getattr(info, "relay_primfuncs", {}).values())
    return found[0] if found else None


def _operators(func: Function) -> list[tuple[str, str]]:
    """Return name and result of each operator of a function, those of functions inside it too."""
    found = []
    for expr in post_order(func.body, open_children):
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            found.append((expr.op.name, _type(expr)))
        elif isinstance(expr, Call) and isinstance(expr.op, Function):
            found += _operators(expr.op)
    return found


def _type(expr: Call) -> str:
    known = expr.checked_type_or_none
    return "" if known is None else str(known).removeprefix("Tensor")


def _group(sources: Sequence[str]) -> str:
    """Return the part of the model that nodes with such names belong to: the path without its last part."""
    if not sources:
        return ""
    parts = sources[0].strip("/").split("/")
    return "/".join(parts[:-1])
