"""The doctor over a zoo of structures: which networks are slower than a peer's, and which kernels lose most time.

    python -m benchmarks.doctor --threads 1 --peers onnxruntime openvino
    python -m benchmarks.doctor --names swin_t r3d_18 --peers onnxruntime openvino torch
    python -m benchmarks.doctor --table

Each engine runs each of `structures` in a process of its own, in turns with the others; what is compared is the
processor time of a process, which other programs on the machine change least. ``tilewright doctor`` then looks at the
network's kernels, in a process that ends, too. What is found is kept in a folder, a file for each network: a run that
ends early goes on where it ended, and a peer that is missing is measured beside ours again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilewright.doctor import diagnose, peak
from tilewright.driver.doctor import kernels_as_json
from tilewright.relay.frontend.door import import_model
from tilewright.runtime import environment
from tilewright.runtime.partial_files import write_whole

from . import structures
from .engines import ENGINES, FLOAT32, TORCH
from .latency import Plan, measure_model
from .report import OURS, as_markdown, cpu_name, geometric_mean

PLAN = Plan(processes=1, rounds=5, block_seconds=0.2, pause_seconds=0.05, builds=1, processor=True)
PEERS = tuple(name for name in ENGINES if name not in (OURS, FLOAT32))
RESULTS = Path("build") / "benchmarks" / "doctor"
KERNELS = 30  # that lose most, in the table


@dataclass
class Beside:
    """A peer's milliseconds and ours beside it, and the largest relative difference of our results from its."""

    ms: float
    ours_ms: float
    difference: float | None

    @property
    def ratio(self) -> float:
        """The peer's time over ours: above 1 where ours is faster."""
        return self.ms / self.ours_ms


@dataclass
class Network:
    """What is known of a structure: peers by name, messages of engines that failed, and what the doctor says."""

    name: str
    cpu: str
    threads: int
    peers: dict[str, Beside] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """The ratio to the fastest peer."""
        return min((beside.ratio for beside in self.peers.values()), default=None)


def read(path: Path, name: str, threads: int) -> Network:
    """Return what an earlier run kept, or a network of which nothing is known."""
    if not path.exists():
        return Network(name, cpu_name(), threads)
    stored = json.loads(path.read_text())
    peers = {peer: Beside(**beside) for peer, beside in stored.pop("peers").items()}
    return Network(peers=peers, **stored)


def write(path: Path, network: Network) -> None:
    """Keep what is known."""
    write_whole(path, json.dumps(asdict(network), indent=1) + "\n")


def examine(
    name: str, folder: Path, peers: Sequence[str], threads: int, alternatives: bool, machine: peak.Machine
) -> Network:
    """Measure what is not known yet of a structure, and keep it."""
    place = folder / name
    path = place / f"{threads}.json"
    network = read(path, name, threads)
    missing = [peer for peer in peers if peer not in network.peers and peer not in network.errors]
    if not missing and network.kernels:
        return network
    model = place / "model.onnx"
    if not model.exists():
        _apart(structures.export, name, place)
    kernels = place / "kernels"
    if not network.kernels:
        found = place / "kernels.json"
        _apart(_diagnose, model, threads, alternatives, kernels, found, machine)
        network.kernels = json.loads(found.read_text())
        write(path, network)
    if missing:
        inputs = structures.reference(model)
        _compare(network, measure_model(name, model, inputs, [OURS, *missing], threads, PLAN, kernels=kernels))
        write(path, network)
    return network


def _compare(network: Network, measured: Any) -> None:
    """Take over what was measured: of each turn the medians, and the median of the turns."""
    ours = measured.engines.get(OURS)
    network.errors |= measured.errors
    for name, engine in measured.engines.items():
        if name == OURS or ours is None:
            continue
        ratio = statistics.median(a / b for a, b in zip(engine.block_medians, ours.block_medians, strict=True))
        mine = statistics.median(ours.block_medians)
        network.peers[name] = Beside(1e3 * mine * ratio, 1e3 * mine, ours.difference)


def _apart(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function in a process of its own, which keeps no memory while engines are measured."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{function.__name__} ended with status {process.exitcode}")


def _diagnose(model: Path, threads: int, alternatives: bool, kernels: Path, found: Path, machine: peak.Machine) -> None:
    os.environ[environment.CACHE_DIR.name] = str(kernels)
    mod, params = import_model(str(model), shape=None)
    options = {"machine": machine, "processor": threads == 1}
    found.write_text(json.dumps(kernels_as_json(diagnose(mod, params, "llvm", (threads,), alternatives, **options))))


def network_rows(networks: Sequence[Network]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each network, the slowest beside its peers first."""
    for network in sorted(networks, key=lambda n: n.ratio or 0.0):
        if network.ratio is None:
            continue
        times = [f"{network.peers[peer].ms:.3f}" if peer in network.peers else "" for peer in PEERS]
        mine = statistics.median(beside.ours_ms for beside in network.peers.values())
        differences = [beside.difference for beside in network.peers.values() if beside.difference is not None]
        worst = f"{max(differences):.0e}" if differences else ""
        total, lost = (sum(kernel[key] for kernel in network.kernels) for key in ("ms", "lost_ms"))
        share = f"{100 * (1 - lost / total):.0f} %" if total else ""
        yield network.name, f"{mine:.3f}", *times, f"{network.ratio:.2f}", share, worst


def kernel_rows(networks: Sequence[Network]) -> list[tuple[str, ...]]:
    """Return a line for each kernel of a network, calls of one together, those that lose most first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for network in networks:
        for kernel in network.kernels:
            groups[network.name, f"{kernel['operators']}: {kernel['shape']}"].append(kernel)
    lost = sorted(groups.items(), key=lambda item: -sum(k["lost_ms"] for k in item[1]))
    return [
        (
            name,
            what if len(what) <= 110 else f"{what[:50]} ... {what[-55:]}",
            str(len(kernels)),
            f"{sum(k['ms'] for k in kernels):.3f}",
            f"{sum(k['lost_ms'] for k in kernels):.3f}",
            max(kernels, key=lambda k: k["lost_ms"])["reason"],
        )
        for (name, what), kernels in lost[:KERNELS]
    ]


def report(networks: Sequence[Network]) -> str:
    """Return both tables in Markdown."""
    shown = [network for network in networks if network.ratio is not None]
    ratios = [network.ratio for network in shown if network.ratio is not None]
    headings = ("network", "ours, ms", *(f"{peer}, ms" for peer in PEERS), "ratio", "of the limit", "difference")
    text = as_markdown(headings, list(network_rows(shown)), (0,))
    if ratios:
        below = sum(ratio < 1 for ratio in ratios)
        text += f"\nGeometric mean of {len(ratios)}: {geometric_mean(ratios):.2f}, {below} below 1.\n"
    columns = ("network", "kernel", "calls", "ms", "lost, ms", "why")
    text += "\n" + as_markdown(columns, kernel_rows(networks), (0, 1, 5))
    failures = [(n.name, engine, message) for n in networks for engine, message in n.errors.items()]
    return text + "".join(f"\n{name}, {engine}: {message.splitlines()[-1][:200]}" for name, engine, message in failures)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.doctor", description=(__doc__ or "").split("\n")[0])
    options.add_argument(
        "--names", nargs="+", help="structures, by default all", choices=structures.names(), metavar="NAME"
    )
    options.add_argument("--peers", nargs="*", default=["onnxruntime", "openvino"], choices=PEERS, metavar="PEER",
                         help=f"of {', '.join(PEERS)}; {TORCH} takes a minute for each network")  # fmt: skip
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--alternatives", action="store_true", help="build each network in other ways, too")
    options.add_argument("--results", type=Path, default=RESULTS, help=f"where results are kept, by default {RESULTS}")
    options.add_argument("--table", action="store_true", help="measure nothing: print what is known")
    return options.parse_args(arguments)


def main() -> None:
    """Measure and print the tables."""
    arguments = parse_arguments()
    networks = []
    machine = None if arguments.table else peak.measure((arguments.threads,))
    for name in arguments.names or structures.names():
        if machine is None:
            networks.append(read(arguments.results / name / f"{arguments.threads}.json", name, arguments.threads))
            continue
        try:
            network = examine(
                name, arguments.results, arguments.peers, arguments.threads, arguments.alternatives, machine
            )
        except (RuntimeError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        networks.append(network)
        print(f"{name}: {'failed' if network.ratio is None else f'{network.ratio:.2f}'}", file=sys.stderr, flush=True)
    print(report(networks))


if __name__ == "__main__":
    main()
