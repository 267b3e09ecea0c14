"""Other ways to build a network, whose kernels are compared with those of the usual build."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.contrib import graph_executor
from tilewright.doctor.inputs import made_up
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.runtime import cpu
from tilewright.runtime.module import set_num_threads
from tilewright.target.target import Target

NodeNames = frozenset[str]
_ROUNDS = 12
_ROUND = 16  # trials between two trainings of the auto-scheduler's model


@dataclass(frozen=True)
class Way:
    """A way to build: its name in a sentence ("... takes 1.2 ms"), and what its PassContext says."""

    name: str
    config: Mapping[str, Any]
    disabled: Sequence[str] = ()


USUAL = Way("as it is built", {})
WAYS = (
    Way("without fusion", {}, ("FuseOps",)),
    Way("in the model's own layout", {}, ("AlterOpLayout",)),
    Way("by direct convolutions", {"relay.conv2d.winograd": "off"}),
    Way("by direct products", {"relay.dense.strassen": False}),
)


class Build:
    """A network that was built one way, ready to run on inputs made up from its types."""

    def __init__(self, mod: IRModule, params: Mapping[str, Any], target: Target, way: Way) -> None:
        """Build ``mod`` for ``target``; raises what the build raises."""
        from tilewright import relay

        with PassContext(opt_level=3, config=dict(way.config), disabled_pass=list(way.disabled)):
            self.factory = relay.build(mod, target, params=dict(params))
        graph = json.loads(self.factory.get_graph_json())
        calls = {n["name"]: n["attrs"] for n in graph["nodes"] if n["op"] != "null"}
        self.function = {name: attrs["func_name"] for name, attrs in calls.items()}
        self.code = {name: attrs.get("hash", attrs["func_name"]) for name, attrs in calls.items()}
        self.sources = graph.get("metadata", {}).get("sources", {})
        self.executor = graph_executor.GraphModule(self.factory["default"](cpu()))
        rng = np.random.default_rng(0)
        for name, shape in self.executor.get_input_info()[0].items():
            self.executor.set_input(name, made_up(shape, self.executor.get_input(name).dtype, rng))

    def of_model(self, node: str) -> NodeNames:
        """Return the model's nodes that a node of the graph computes."""
        return frozenset(self.sources.get(node, ()))

    def times(self, seconds: float, processor: bool = False) -> dict[str, float]:
        """Return the seconds of each node, the least of some rounds: what disturbs a run can only make it slower.

        Args:
            seconds: about as long as this measures.
            processor: take this thread's processor time, which other programs change least.
        """
        least: dict[str, float] = {}
        once = sum(spent for _, spent in self.executor.time_nodes(1, processor))
        runs = max(1, min(1000, int(seconds / _ROUNDS / max(once, 1e-7))))
        for _ in range(_ROUNDS):
            for node, spent in self.executor.time_nodes(runs, processor):
                least[node] = min(spent, least.get(node, spent))
        return least


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run networks on so many threads."""
    set_num_threads(count)
    try:
        yield
    finally:
        set_num_threads(0)


def other_builds(
    mod: IRModule, params: Mapping[str, Any], target: Target, trials: int = 0
) -> Iterator[tuple[Way, Build]]:
    """Yield the network built in each other way that succeeds and gives other kernels.

    Args:
        mod: the network.
        params: arrays of its parameters by name.
        target: what it is built for.
        trials: how many programs the auto-scheduler measures for each kernel; with 0 that way is left out.
    """
    for way in WAYS:
        try:
            yield way, Build(mod, params, target, way)
        except TilewrightError:  # a way that this network or target does not have
            continue
    if trials:
        way = Way(f"by the auto-scheduler's best of {trials}", {"relay.backend.use_auto_scheduler": True})
        with _searched(mod, params, target, trials):
            try:
                built = Build(mod, params, target, way)
            except TilewrightError:
                return
        yield way, built


@contextmanager
def _searched(mod: IRModule, params: Mapping[str, Any], target: Target, trials: int) -> Iterator[None]:
    """Search schedules of the network's kernels, each alone, and have builds take the fastest."""
    from tilewright import auto_scheduler

    tasks, _ = auto_scheduler.extract_tasks(mod, dict(params), target)
    with tempfile.TemporaryDirectory(prefix="tilewright-doctor-") as folder:
        log = Path(folder) / "records.json"
        log.touch()
        for task in tasks:
            options = auto_scheduler.TuningOptions(
                trials,
                num_measures_per_round=min(trials, _ROUND),
                verbose=0,
                runner=auto_scheduler.LocalRunner(number=1, repeat=3, min_repeat_ms=4),
                measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
            )
            task.tune(options)
        with auto_scheduler.ApplyHistoryBest(log):
            yield


def common_groups(usual: Build, other: Build) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the smallest groups of nodes of two builds that compute the same nodes of the model, by other code.

    Nodes belong together that compute a node of the model in common, in either build.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for build in (usual, other):
        for node in build.function:
            first, *rest = [*build.of_model(node), None]
            for name in rest[:-1] if first is not None else ():
                parent[root(str(name))] = root(str(first))
    groups: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, build in enumerate((usual, other)):
        for node in build.function:
            for name in sorted(build.of_model(node))[:1]:
                groups[root(name)][side].append(node)
    for ours, theirs in groups.values():
        same = sorted(usual.code[node] for node in ours) == sorted(other.code[node] for node in theirs)
        if ours and theirs and not same:
            yield ours, theirs
