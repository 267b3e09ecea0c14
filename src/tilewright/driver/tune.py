"""``tilewright tune``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilewright.autotvm.record import save_records
from tilewright.autotvm.store import processor_key, save_default
from tilewright.autotvm.task.task import Task
from tilewright.driver.board import Board
from tilewright.driver.options import check_writable, parse_input_shapes
from tilewright.driver.pass_options import parse_pass_config
from tilewright.driver.report import print_json, print_rows, print_text
from tilewright.ir.transform import PassContext
from tilewright.relay.frontend import import_model
from tilewright.report.tuning import name_of, write_report
from tilewright.target.target import Target
from tilewright.tuning.compare import Comparison, compare_tuned
from tilewright.tuning.extraction import UntunedNetwork
from tilewright.tuning.measure.measure_methods import LocalBuilder, LocalRunner, RPCRunner, measure_option
from tilewright.tuning.network import (
    NetworkTuner,
    is_on_this_machine,
    own_share,
    run_name,
    trials_file,
)
from tilewright.tuning.places import place_of
from tilewright.tuning.roofline import measure_machine
from tilewright.tuning.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner

TUNERS = ("auto", "xgb", "ga", "random", "grid")


@dataclass(frozen=True)
class TuneOptions:
    """Options of the command: what to tune, how long, and where records go."""

    model: Path
    output: Path | None
    tuner: str
    trials: int
    minutes: float | None
    target: str
    input_shape: list[str] | None
    pass_config: list[str] | None
    report: Path | None
    number: int
    repeat: int
    timeout: float
    flush: bool
    board: Board | None
    dask: str | None


def make_tuner(name: str) -> Callable[[Task], Tuner]:
    """Return a function that makes the tuner of a name. "auto": XGBoost if installed, else genetic."""
    if name not in TUNERS:
        raise typer.BadParameter(f"--tuner is one of {', '.join(TUNERS)}, found {name!r}")
    if name == "auto":
        try:
            import xgboost  # noqa: F401
        except ImportError:
            name = "ga"
        else:
            name = "xgb"
    if name == "xgb":
        from tilewright.tuning.tuner.xgboost_tuner import XGBTuner

        return lambda task: XGBTuner(task, plan_size=32)
    plain: dict[str, Callable[[Task], Tuner]] = {"ga": GATuner, "random": RandomTuner, "grid": GridSearchTuner}
    return plain[name]


def tune_model(options: TuneOptions, quiet: bool, as_json: bool) -> None:
    """Tune a model's tasks and keep the records that make it faster."""
    output = options.output or Path(f"{options.model.stem}.records.jsonl")
    check_writable(output)
    shapes, config = parse_input_shapes(options.input_shape), parse_pass_config(options.pass_config)
    table, making = _LiveTable(options, quiet or as_json), make_tuner(options.tuner)
    log, target = trials_file(output), Target(options.target)
    mod, params = import_model(options.model, shapes)
    option = _option(options, log)
    with PassContext(config=config):
        network = UntunedNetwork(mod, params, target)
        machine = measure_machine(target) if is_on_this_machine(option) else None
        tuner = NetworkTuner(network.tasks, making, option, machine, log, table.show)
        try:
            with table:
                tuner.run(options.trials, options.minutes)
            comparison = compare_tuned(network, tuner.states, place_of(option["runner"]), machine is not None)
        except KeyboardInterrupt:
            print_text(f"interrupted: all trials are in {log}; the same command goes on from there", file=sys.stderr)
            raise
        finally:
            tuner.close()
    records = comparison.records
    save_records(output, records)
    kept = save_default(target, records)
    if options.report is not None:
        write_report(options.report, f"{options.model.name} on {processor_key(target)}", tuner.states, comparison)
    if as_json:
        print_json(_json(output, tuner, comparison))
    elif not quiet:
        print_rows(_summary(output, kept, options, tuner, comparison))


def _option(options: TuneOptions, log: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "timeout": options.timeout, "number": options.number, "repeat": options.repeat,
        "enable_cpu_cache_flush": options.flush,
    }  # fmt: skip
    if options.dask is not None:
        if options.board is not None:
            raise typer.BadParameter("--dask and boards exclude one another")
        from tilewright.tuning.cluster import ClusterBuilder, ClusterRunner

        runner: Any = ClusterRunner(options.dask, run=run_name(log), **settings)
        return measure_option(ClusterBuilder(timeout=options.timeout), runner)
    if options.board is None:
        runner = LocalRunner(**settings)
    elif options.board.tracker is None:
        raise typer.BadParameter("tuning asks for boards one by one: give --tracker HOST:PORT and --rpc-key")
    else:
        runner = RPCRunner(options.board.key, *options.board.tracker, **settings)
    return measure_option(LocalBuilder(timeout=options.timeout), runner)


class _LiveTable:
    """A table by task, refreshed on a terminal; elsewhere a line for every task that improved."""

    def __init__(self, options: TuneOptions, silent: bool) -> None:
        self.options, self.silent = options, silent
        self._console = Console(stderr=True, quiet=silent)
        self._live: Live | None = None
        if self._console.is_terminal and not silent:
            self._live = Live(console=self._console, refresh_per_second=2)
        self._reported: dict[int, float] = {}

    def __enter__(self) -> _LiveTable:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, tuner: NetworkTuner) -> None:
        """Show the tuner's progress."""
        if self.silent:
            return
        if self._live is not None:
            self._live.update(self._table(tuner))
            return
        for number, state in enumerate(tuner.states):
            if state.best < self._reported.get(number, float("inf")):
                self._reported[number] = state.best
                gain = state.untuned / state.best
                text = f"{name_of(state)}\t{state.best * 1e3:.4f} ms\t{gain:.2f}x\t{len(state.trials)} trials"
                print_text(text, file=sys.stderr)

    def _table(self, tuner: NetworkTuner) -> Table:
        elapsed = time.monotonic() - tuner.began
        left = self._left(tuner, elapsed)
        title = f"{tuner.trials_done} of {self.options.trials} trials, {elapsed:.0f} s, about {left:.0f} s left"
        table = Table(title=title, box=None, pad_edge=False)
        for heading in ("task", "uses", "untuned ms", "best ms", "gain", "of roofline", "trials", "failures", ""):
            table.add_column(heading, justify="left" if heading in ("task", "failures", "") else "right")
        for state in tuner.states:
            known = state.untuned < float("inf")
            table.add_row(
                name_of(state), str(state.uses), f"{state.untuned * 1e3:.4f}" if known else "",
                f"{state.best * 1e3:.4f}" if known else "", f"{state.untuned / state.best:.2f}" if known else "",
                f"{state.share:.0%}" if state.least else "", str(len(state.trials)),
                state.tuner.failures.summary()[:60], state.note.split("\n")[0][:60],
            )  # fmt: skip
        return table

    def _left(self, tuner: NetworkTuner, elapsed: float) -> float:
        rest = self.options.trials - tuner.trials_done
        by_trials = elapsed / max(tuner.trials_done, 1) * rest
        return by_trials if self.options.minutes is None else min(by_trials, 60 * self.options.minutes - elapsed)


def _summary(
    output: Path, kept: Path | None, options: TuneOptions, tuner: NetworkTuner, comparison: Comparison
) -> list[tuple[str, str]]:
    rows = [
        ("tasks", str(len(tuner.states))),
        ("trials", f"{tuner.trials_done}, all in {trials_file(output)}{' (interrupted)' if tuner.interrupted else ''}"),
        ("time", f"{time.monotonic() - tuner.began:.0f} s, of which the tuners' own {own_share(tuner.states):.0%}"),
    ]
    for state in tuner.states:
        if state.tuner.failures.failed:
            rows.append((f"failures of {name_of(state)}", state.tuner.failures.summary()))
        if state.note.startswith("stopped"):
            rows.append((f"stopped {name_of(state)}", state.note))
    speed = f"{comparison.untuned * 1e3:.3f} ms untuned, {comparison.tuned * 1e3:.3f} ms tuned"
    rows.append(("network", f"{speed} ({comparison.untuned / comparison.tuned:.2f} times as fast)"))
    rows += [("dropped", why) for why in comparison.dropped]
    count = len(comparison.records)
    rows.append(("records", f"{count} in {output}" + (f", and in {kept}" if kept is not None else "")))
    if options.report is not None:
        rows.append(("report", str(options.report)))
    return rows


def _json(output: Path, tuner: NetworkTuner, comparison: Comparison) -> dict[str, Any]:
    tasks = [
        {
            "task": name_of(s), "template": s.task.name, "uses": s.uses, "untuned_seconds": s.untuned,
            "best_seconds": s.best, "share_of_roofline": s.share, "trials": len(s.trials),
            "failures": dict(s.tuner.failures.counts), "record": s.record is not None, "note": s.note,
        }
        for s in tuner.states
    ]  # fmt: skip
    network = {
        "untuned_seconds": comparison.untuned, "tuned_seconds": comparison.tuned,
        "records": len(comparison.records), "dropped": comparison.dropped,
    }  # fmt: skip
    return {
        "records": str(output), "trials": tuner.trials_done, "interrupted": tuner.interrupted,
        "tuners_own_share": own_share(tuner.states), "tasks": tasks, "network": network,
    }  # fmt: skip
