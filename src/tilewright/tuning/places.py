"""Places to compare the tuned network with the untuned: this machine, a board, or a worker of a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.runtime.device import cpu
from tilewright.tuning.measure.measure import Runner
from tilewright.tuning.measure.measure_methods import RPCRunner
from tilewright.tuning.processes.networks import NetworkRun, networks_in_turns

Place = Callable[[Sequence[Any]], list[NetworkRun]]  # of what relay.build gave


def here(factories: Sequence[Any]) -> list[NetworkRun]:
    """Run networks on this machine."""
    return networks_in_turns(factories, cpu(0))


def place_of(runner: Runner) -> Place:
    """Return the place where a runner's candidates run."""
    if isinstance(runner, RPCRunner):
        return lambda factories: _on_board(runner, factories)
    in_turns = getattr(runner, "networks_in_turns", None)  # of a cluster, which may not be installed
    if in_turns is None:
        return here
    return lambda factories: _exported(factories, lambda paths: in_turns([path.read_bytes() for path in paths]))


def _on_board(runner: RPCRunner, factories: Sequence[Any]) -> list[NetworkRun]:
    """All in one session, so that they meet the same board."""
    session = runner.session(timeout=0)

    def run(paths: Sequence[Path]) -> list[NetworkRun]:
        for path in paths:
            session.upload(path)
        try:
            return networks_in_turns([session.load_module(path.name) for path in paths], session.cpu(0))
        finally:
            for path in paths:
                session.remove(path.name)

    return _exported(factories, run)


def _exported(factories: Sequence[Any], run: Callable[[Sequence[Path]], list[NetworkRun]]) -> list[NetworkRun]:
    with tempfile.TemporaryDirectory(prefix="tilewright-network-") as folder:
        paths = [Path(folder) / f"network{i}.so" for i in range(len(factories))]
        for factory, path in zip(factories, paths, strict=True):
            factory.export_library(str(path))
        return run(paths)
