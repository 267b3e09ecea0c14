"""Latency of whole models: Tilewright beside ONNX Runtime and OpenVINO, on the same ONNX files, and `torch.compile`.

    python -m benchmarks.latency --models resnet50 bert_base --peers onnxruntime openvino --threads 2

A model is a name of `tilewright.testing.zoo` (exported on first use) or the path of an ONNX file with known
input shapes. With `--int8` the models are quantized (`quantized.NETWORKS`), all engines run the same file, and our
own float32 form of the network runs beside them; so it does with `--precision bf16`, where OpenVINO runs as it comes,
in bfloat16 on processors that have it. The peer `torch` compiles a network's PyTorch module, which only
those of the zoo have. Every engine has its own process, which loads the model and then runs a block of inferences on
command. Blocks go in turns (A B C, A B C, ...), so that slow changes of the machine meet all engines alike, with a
pause before each, in which the spinning threads of the engine before go to sleep.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from rich.console import Console

from tilewright.doctor import peak
from tilewright.relay.transform.precision.halve_weights import PRECISIONS
from tilewright.testing import zoo

from . import flops
from .client import Client, EngineError
from .engines import ENGINES, FLOAT32, ONEDNN, PRECISION, TORCH, describe_network
from .plot import ratios_svg
from .quantized import NETWORKS, find_quantized
from .report import OURS, Build, EngineResult, ModelResult, as_json, geometric_mean, markdown, table, write_json


@dataclass(frozen=True)
class Plan:
    """How long to measure: `processes` of every engine one after the other, in each `rounds` turns of blocks of about
    `block_seconds`, each after `pause_seconds` of quiet.

    Which pages of memory a process gets changes its speed for all its life. `builds`: how often our compiler runs.
    `processor`: take the processor time of a process, which other programs on the machine change least, not wall time.
    """

    processes: int
    rounds: int
    block_seconds: float
    pause_seconds: float
    builds: int = 2
    processor: bool = False


THOROUGH = Plan(processes=4, rounds=3, block_seconds=1.0, pause_seconds=0.3)
QUICK = Plan(processes=3, rounds=2, block_seconds=0.3, pause_seconds=0.2)
REPORT_COLUMNS = 130  # of a table that is not printed to a terminal


def random_inputs(model: Path) -> dict[str, np.ndarray]:
    """Inputs for the ONNX file `model`: normal numbers for floats, 0 and 1 for integers.

    Raises ValueError where a dimension is not known.
    """
    graph = onnx.load(str(model), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    generator = np.random.default_rng(0)
    inputs = {}
    for value in graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims):
            raise ValueError(f"{model}: input {value.name!r} has unknown dimensions; fix them in the file first")
        shape = [dim.dim_value for dim in dims]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        floating = np.issubdtype(dtype, np.floating)
        drawn = generator.standard_normal(shape) if floating else generator.integers(0, 2, shape)
        inputs[value.name] = drawn.astype(dtype)
    return inputs


def find_model(name: str) -> tuple[Path, dict[str, np.ndarray]]:
    """The ONNX file and the inputs of a zoo name or a path."""
    if name.endswith(".onnx"):
        path = Path(name).resolve()
        return path, random_inputs(path)
    path = zoo.export(name)
    return path, zoo.reference(path)[0]


def engines_for(name: str, engines: Sequence[str]) -> list[str]:
    """Those of `engines` that can run the model `name`: an ONNX file is no PyTorch module."""
    return [engine for engine in engines if engine != TORCH or name in zoo.names()]


def measure_model(
    name: str,
    path: Path,
    inputs: Mapping[str, np.ndarray],
    engines: Sequence[str],
    threads: int,
    plan: Plan,
    options: Mapping[str, Any] | None = None,
    kernels: Path | None = None,
) -> ModelResult:
    """Measure all `engines` on one model; an engine that fails is left out and its message kept.

    `options` are the sizes that a network of the zoo was exported with, unless they are the published ones; `kernels`
    is the folder of our kernel cache, unless it is to be an empty one.
    """
    result = ModelResult(name, threads, flops.count(path), {}, {})
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as scratch:
        folder = Path(scratch)
        stored = folder / "inputs.npz"
        arrays = dict(inputs)
        with stored.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

        def connect(engine: str) -> Client:
            return Client(engine, path, stored, folder, threads, kernels)

        files = dict.fromkeys(engines, path)
        if TORCH in files:
            files[TORCH] = folder / "network.json"
            describe_network(files[TORCH], name, options or {})
        builds: dict[str, Build] = {}
        for ahead in [engine for engine in (OURS, ONEDNN, FLOAT32) if engine in files]:
            try:
                files[ahead], builds[ahead] = _compile(partial(connect, ahead), plan.builds)
            except EngineError as error:
                result.errors[ahead] = str(error)
        for turn in range(plan.processes):
            if turn and OURS in result.engines:
                files[OURS] = _moved(files[OURS])
            with ExitStack() as stack:
                clients: dict[str, Client] = {}
                for engine in (engine for engine in engines if engine not in result.errors):
                    client = stack.enter_context(connect(engine))
                    if _load(client, files[engine], builds.get(engine), result):
                        clients[engine] = client
                _take_turns(clients, result, plan)
                if not turn:
                    _compare(clients, result, folder)
                for engine, client in clients.items():
                    measured = result.engines[engine]
                    measured.peak_mib = max(measured.peak_mib, client.ask("quit")["peak_mib"])
    return result


def _load(client: Client, path: Path, build: Build | None, result: ModelResult) -> bool:
    """Have an engine load its file; one that cannot is left out of the result and its message kept."""
    try:
        answer = client.ask("load", path=str(path))
    except EngineError as error:
        result.errors[client.engine] = str(error)
        result.engines.pop(client.engine, None)
        return False
    first = EngineResult(answer["version"], answer["seconds"], answer["peak_mib"], build)
    result.engines.setdefault(client.engine, first)
    return True


def _moved(library: Path) -> Path:
    """The library in other pages of memory, which are those of its file."""
    copy = library.with_stem(library.stem + "_")
    shutil.copyfile(library, copy)
    library.unlink()
    return copy


def _compile(connect: Callable[[], Client], builds: int) -> tuple[Path, Build]:
    """Compile so often, in processes of their own: the later ones have what the first left in the kernel cache.

    Returns the library and what it took. The processes end, so the compiler's memory is not counted as the model's.
    """
    answers = []
    for _ in range(builds):
        with connect() as client:
            answers.append(client.ask("prepare"))
    first, again = answers[0], answers[-1]
    library = Path(first["path"])
    return library, Build(first["seconds"], again["seconds"], first["peak_mib"], library.stat().st_size)


def _take_turns(clients: Mapping[str, Client], result: ModelResult, plan: Plan) -> None:
    """Warm every engine up, choose its runs a block, and measure in turns."""
    counts = {}
    for engine, client in clients.items():
        time.sleep(plan.pause_seconds)
        client.ask("run", count=2)
        # the last of a few runs: the first ones still fill caches and start threads
        once = client.ask("run", count=3, processor=plan.processor)["times"][-1]
        counts[engine] = min(2000, max(3, math.ceil(plan.block_seconds / once)))
    for _ in range(plan.rounds):
        for engine, client in clients.items():
            time.sleep(plan.pause_seconds)
            answer = client.ask("run", count=counts[engine], processor=plan.processor)
            # the first runs of a block wake threads and refill caches after the pause
            settled = answer["times"][max(1, counts[engine] // 10) :]
            result.engines[engine].blocks.append(settled)
            result.engines[engine].cpu.append(answer["cpu"])


def _compare(clients: Mapping[str, Client], result: ModelResult, folder: Path) -> None:
    """Set every engine's largest relative difference from ONNX Runtime's outputs."""
    if "onnxruntime" not in clients:
        return
    expected = clients["onnxruntime"].outputs(folder / "outputs.npz")
    for engine, client in clients.items():
        found = client.outputs(folder / "outputs.npz")
        result.engines[engine].difference = max(
            zoo.largest_relative_difference(found[name], wanted) for name, wanted in expected.items()
        )


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.latency", description="Latency of models on several engines, side by side."
    )
    options.add_argument("--models", nargs="+", help="zoo names or ONNX files; by default all of the zoo, or of --int8")
    options.add_argument("--int8", action="store_true", help=f"quantized networks, by default {', '.join(NETWORKS)}")
    options.add_argument(
        "--precision", default=FLOAT32, choices=PRECISIONS, help="of our weights, as `compile` takes it"
    )
    peers = [name for name in ENGINES if name not in (OURS, FLOAT32)]
    usual = [name for name in peers if name not in (TORCH, ONEDNN)]
    options.add_argument("--peers", nargs="*", default=usual, choices=peers, help=f"by default {' and '.join(usual)}")
    options.add_argument("--no-tilewright", action="store_true", help="measure the peers alone")
    options.add_argument("--threads", type=int, nargs="+", default=[2])
    options.add_argument("--quick", action="store_true", help="fewer and shorter blocks, for a first look")
    options.add_argument("--markdown", type=Path, help="write the table as Markdown")
    options.add_argument("--plot", type=Path, help="write the ratios as an SVG bar chart")
    options.add_argument("--json", type=Path, default=Path("build") / "benchmarks" / "latency.json")
    return options.parse_args(arguments)


def main() -> None:
    """Measure, print the table, write the JSON; exit status 1 where an engine failed."""
    arguments = parse_arguments()
    plan = QUICK if arguments.quick else THOROUGH
    if arguments.precision != FLOAT32:
        os.environ[PRECISION] = arguments.precision  # read by the engines' processes
    ours = [OURS, *([FLOAT32] if arguments.int8 or arguments.precision != FLOAT32 else [])]
    engines = [*([] if arguments.no_tilewright else ours), *arguments.peers]
    find, models = (find_quantized, NETWORKS) if arguments.int8 else (find_model, zoo.names())
    console = Console()
    if not console.is_terminal:
        console = Console(width=REPORT_COLUMNS)
    results = []
    with console.status("Measuring the machine") as status:
        machine = peak.measure(tuple(sorted({1, *arguments.threads})))
        for name in arguments.models or models:
            status.update(f"{name}: exporting")
            path, inputs = find(name)
            for threads in arguments.threads:
                chosen = engines_for(name, engines)
                status.update(f"{name}: measuring {', '.join(chosen)} with {threads} thread(s)")
                results.append(measure_model(name, path, inputs, chosen, threads, plan))
    console.print(peak.table(machine))
    console.print(table(results, machine))
    ratios = [ratio for result in results if (ratio := result.ratio()) is not None]
    if ratios:
        console.print(f"Geometric mean of the ratios: {geometric_mean(ratios):.2f}")
    gains = [gain for result in results if (gain := result.gain_of_integers()) is not None]
    if gains:
        console.print(f"Geometric mean of the ratios of our float32: {geometric_mean(gains):.2f}")
    settings = {
        "plan": asdict(plan),
        "engines": engines,
        "threads": arguments.threads,
        "precision": arguments.precision,
    }
    write_json(arguments.json, as_json(results, machine, settings))
    console.print(f"Written: {arguments.json}")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(results, machine))
        console.print(f"Written: {arguments.markdown}")
    if arguments.plot:
        arguments.plot.write_text(ratios_svg(results))
        console.print(f"Written: {arguments.plot}")
    failures = [(result.model, name, text) for result in results for name, text in result.errors.items()]
    for model, name, text in failures:
        console.print(f"{model}, {name} failed: {text}", style="red", markup=False)
    if failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
