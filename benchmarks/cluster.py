"""How tuning scales over a cluster: what a trial costs is measured on a real one here, many workers are simulated.

    python -m benchmarks.cluster --trials 60 --workers 1 10 100 1000 --threads 2

The measured part starts a Dask scheduler and a worker as processes and tunes one convolution, then sends trials that do
nothing, and reads the processor time of all. Times of builds and runs are scaled to the processor time, which another
program's load does not change.

The simulated part is a queue for each: the tuner (which chooses, sends, and learns: one trial at a time), the scheduler
(one message at a time), and workers with ``--threads`` that build side by side and run alone, as ``cluster.site`` does.
``--longer`` makes runs as many times as long: what repeats of a whole second (``min_repeat_ms``) cost.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

_PLANS = (64, 256, 1024)
_NOTHINGS, _AT_ONCE = 320, 32  # trials that do nothing
_MESSAGE = 0.0005  # seconds that a message travels


@dataclass(frozen=True)
class Costs:
    """Seconds of a trial: of builds and of runs by sample; of the tuner and the scheduler on average."""

    builds: list[float]
    runs: list[float]
    choosing: dict[str, float]  # by the size of plans, which is what is under way
    sending: float
    scheduler: float

    def tuner(self, under_way: int) -> float:
        """Of a trial, when there are so many."""
        size = max(int(s) for s in self.choosing if int(s) <= max(under_way, _PLANS[0]))
        return self.sending + self.choosing[str(size)]


def processor_seconds(module: str, mark: str) -> float:
    """Processor time of all processes that run a module and have a mark in their environment."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if module in (process / "cmdline").read_text() and mark.encode() in (process / "environ").read_bytes():
                fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(trials: int, tuner_name: str) -> Costs:
    """What a trial costs, of a convolution of 1x128x28x28 with 256x128x3x3 on a worker of one thread here."""
    from tilewright import autotvm, relay
    from tilewright.tuning.cluster import ClusterBuilder, ClusterRunner

    x, w = relay.var("data", shape=(1, 128, 28, 28)), relay.var("weight", shape=(256, 128, 3, 3))
    net = relay.nn.conv2d(x, w, padding=(1, 1), channels=256, kernel_size=(3, 3), strides=(2, 2))
    mod, params = relay.testing.create_workload(relay.Function([x, w], net))
    task = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)[0]
    making = autotvm.tuner.XGBTuner if tuner_name == "xgb" else autotvm.tuner.RandomTuner
    with tempfile.TemporaryDirectory() as folder:
        processes, address = start_cluster(folder)
        runner = ClusterRunner(address, timeout=60, enable_cpu_cache_flush=True)
        try:
            option = autotvm.measure_option(ClusterBuilder(timeout=60), runner)
            making(task).tune(4, option)
            before = [processor_seconds(module, folder) for module in MODULES[1:]]
            making(task).tune(trials, option)
            after = [processor_seconds(module, folder) for module in MODULES[1:]]
            told = [e for e in runner.connection.journaled() if e["record"]["config"] is not None and not e["error_no"]]
            scheduler, client = sending(runner.connection.client, json.dumps(told[0]), folder)
        finally:
            runner.close()
            for process in processes:
                process.kill()
                process.wait()
    builds = [e["build_seconds"] for e in told]
    runs = [e["seconds"] - e["build_seconds"] for e in told]
    worker, builder, run = ((y - x) / trials for x, y in zip(before, after, strict=True))
    own = {str(size): choosing(making(task), size) for size in _PLANS}
    print(f"a trial: building {builder:.3f} s of processor time, running {run:.3f}, the worker beside {worker:.3f}")
    print(
        f"sending and receiving {client * 1e3:.2f} ms, scheduler {scheduler * 1e3:.2f} ms; choosing and learning, by "
    )
    print("the size of plans:", ", ".join(f"{size}: {seconds * 1e3:.2f} ms" for size, seconds in own.items()))
    return Costs(_scaled(builds, builder + worker / 2), _scaled(runs, run + worker / 2), own, client, scheduler)


def sending(client: Any, text: str, folder: str) -> tuple[float, float]:
    """Processor time of the scheduler and of this process for a trial that does nothing."""

    def build(request: str) -> bytes:
        return bytes(40_000) + request[:1].encode()

    def run(request: str, built: bytes, untuned: bytes) -> int:
        from distributed import get_worker

        get_worker().log_event("nothing", request)
        return len(built) + len(untuned)

    came: list[Any] = []
    client.subscribe_topic("nothing", came.append)
    untuned = client.submit(build, text, pure=False)
    untuned.result()
    before, mine = processor_seconds(MODULES[0], folder), time.process_time()
    for _ in range(_NOTHINGS // _AT_ONCE):
        futures = [client.submit(build, text, pure=False) for _ in range(_AT_ONCE)]
        futures = [client.submit(run, text, f, untuned, pure=False, priority=10) for f in futures]
        while len(came) < _AT_ONCE:
            time.sleep(0.01)
        came.clear()
        del futures
    spent = processor_seconds(MODULES[0], folder) - before
    return spent / _NOTHINGS, (time.process_time() - mine) / _NOTHINGS


def choosing(tuner: Any, plan_size: int) -> float:
    """Processor time in which a tuner chooses a trial and learns from it."""
    from tilewright.tuning.measure import MeasureInput, MeasureResult

    task, made, luck = tuner.task, 0, random.Random(0)
    task.flop = task.flop or 1e9
    tuner.plan_size = plan_size
    before = time.process_time()
    while made < max(_NOTHINGS, 2 * plan_size):
        inputs = [MeasureInput(task.target, task, config) for config in tuner.next_batch(8)]
        tuner.update(inputs, [MeasureResult((luck.uniform(1e-3, 2e-3),), 0, 0.1, 0.0) for _ in inputs])
        made += len(inputs)
    return (time.process_time() - before) / made


MODULES = (
    "dask_scheduler",
    "dask_worker",
    "tilewright.tuning.cluster.build_worker",
    "tilewright.tuning.processes.run_worker",
)


def start_cluster(folder: str) -> tuple[list[subprocess.Popen[bytes]], str]:
    """A scheduler and a worker of one thread; the folder is in the environment of all their processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "XDG_CACHE_HOME": folder, "TILEWRIGHT_CACHE": "0"}
    port = address.rsplit(":", 1)[1]
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", port, "--dashboard-address", ":0"],
        ["worker", address, "--no-nanny", "--nthreads", "1", "--local-directory", f"{folder}/dask"],
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{name}", *rest, "--no-dashboard"],
            stderr=subprocess.DEVNULL, env=environment,
        )
        for name, *rest in commands
    ]  # fmt: skip
    return processes, address


def _scaled(samples: list[float], mean: float) -> list[float]:
    """Samples of another mean."""
    return [s * mean * len(samples) / sum(samples) for s in samples]


@dataclass
class Worker:
    """A machine: free threads, what waits for one, what waits for the machine."""

    free: int
    waiting: list[tuple[int, int, str]] = field(default_factory=list)  # (priority, order, "build" or "run")
    building: int = 0
    running: bool = False
    for_machine: list[str] = field(default_factory=list)  # threads that wait


class Simulation:
    """Trials on ``workers`` machines of ``threads`` each."""

    def __init__(self, costs: Costs, workers: int, threads: int, trials: int) -> None:
        self.costs, self.trials, self.threads = costs, trials, threads
        self.tuner = costs.tuner(workers * (threads + 1))
        self.random = random.Random(0)
        self.now, self.order = 0.0, 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.workers = [Worker(threads) for _ in range(workers)]
        self.busy_until = {"tuner": 0.0, "scheduler": 0.0}
        self.busy = {"tuner": 0.0, "scheduler": 0.0}
        self.sent, self.ends = 0, list[float]()

    def at(self, when: float, then: Callable[[], None]) -> None:
        """Do something later."""
        self.order += 1
        heapq.heappush(self.events, (when, self.order, then))

    def serve(self, who: str, seconds: float, then: Callable[[], None]) -> None:
        """Something that one process does after what it has to do before."""
        self.busy[who] += seconds
        self.busy_until[who] = max(self.now, self.busy_until[who]) + seconds
        self.at(self.busy_until[who] + _MESSAGE, then)

    def run(self) -> float:
        """Trials a second, without the first and the last tenth."""
        for worker in self.workers:
            for _ in range(self.threads + 1):
                self.send(worker)
        while self.events:
            self.now, _, then = heapq.heappop(self.events)
            then()
        cut = len(self.ends) // 10
        middle = self.ends[cut : len(self.ends) - cut]
        return (len(middle) - 1) / (middle[-1] - middle[0])

    def send(self, worker: Worker) -> None:
        """The tuner chooses a trial; the scheduler gives its build to a worker."""
        if self.sent == self.trials:
            return
        self.sent += 1
        deliver = lambda: self.arrive(worker, "build")  # noqa: E731
        self.serve("tuner", self.tuner / 2, lambda: self.serve("scheduler", self.costs.scheduler / 2, deliver))

    def arrive(self, worker: Worker, kind: str) -> None:
        """A task waits for a thread; runs come first."""
        self.order += 1
        heapq.heappush(worker.waiting, (0 if kind == "run" else 1, self.order, kind))
        self.threads_take(worker)

    def threads_take(self, worker: Worker) -> None:
        """Free threads take tasks, and wait with them for the machine."""
        while worker.free and worker.waiting:
            worker.free -= 1
            worker.for_machine.append(heapq.heappop(worker.waiting)[2])
        self.machine_takes(worker)

    def machine_takes(self, worker: Worker) -> None:
        """Builds go on side by side; a run needs the machine alone. Who waited longest for a free machine gets it."""
        if worker.running or not worker.for_machine:
            return
        if not worker.building and worker.for_machine[0] == "run":
            worker.for_machine.pop(0)
            worker.running = True
            self.at(self.now + self.random.choice(self.costs.runs), lambda: self.ran(worker))
            return
        for _ in range(worker.for_machine.count("build")):
            worker.for_machine.remove("build")
            worker.building += 1
            self.at(self.now + self.random.choice(self.costs.builds), lambda: self.built(worker))

    def built(self, worker: Worker) -> None:
        """Its run follows, on the same worker."""
        worker.building -= 1
        worker.free += 1
        self.arrive(worker, "run")

    def ran(self, worker: Worker) -> None:
        """The result goes to the scheduler, and from it to the tuner, who sends another trial."""
        worker.running = False
        worker.free += 1
        self.threads_take(worker)
        learn = lambda: self.serve("tuner", self.tuner / 2, lambda: self.end(worker))  # noqa: E731
        self.serve("scheduler", self.costs.scheduler / 2, learn)

    def end(self, worker: Worker) -> None:
        """A result was learned from; its worker gets another trial."""
        self.ends.append(self.now)
        self.send(worker)


def main() -> None:
    """Measure, simulate, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trials", type=int, default=60, help="that are measured")
    parser.add_argument("--tuner", choices=("random", "xgb"), default="xgb")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100, 300, 1000])
    parser.add_argument("--threads", type=int, default=2, help="of a simulated worker")
    parser.add_argument("--each", type=int, default=60, help="simulated trials of each worker")
    parser.add_argument("--costs", type=Path, help="a file of costs: read where it exists, written where not")
    parser.add_argument("--longer", type=float, default=1.0, help="runs take so many times as long")
    options = parser.parse_args()
    if options.costs is not None and options.costs.exists():
        costs = Costs(**json.loads(options.costs.read_text()))
    else:
        costs = measure(options.trials, options.tuner)
        if options.costs is not None:
            options.costs.write_text(json.dumps(asdict(costs)))
    costs = replace(costs, runs=[options.longer * r for r in costs.runs])
    build, run = (sum(s) / len(s) for s in (costs.builds, costs.runs))
    print(f"build {build:.3f} s, run {run:.3f} s")
    print("workers  trials/s  of one worker's each  tuner busy  scheduler busy")
    one = 0.0
    for count in options.workers:
        simulation = Simulation(costs, count, options.threads, options.each * count)
        speed = simulation.run()
        one = one or speed / count
        shares = [simulation.busy[who] / simulation.now for who in ("tuner", "scheduler")]
        print(f"{count:7d}  {speed:8.1f}  {speed / count / one:20.0%}  {shares[0]:10.0%}  {shares[1]:14.0%}")


if __name__ == "__main__":
    main()
