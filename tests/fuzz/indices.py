"""Random indices, lengths, sizes and coordinates for every operator that takes them when a model runs.

Good ones give what ONNX's reference evaluator gives, bad ones the error that names the node, others anything; none
touches other memory: half of the programs are C that the sanitizers of addresses and behaviour watch, run by a process
of its own (``python -m tests.fuzz.indices FOLDER``), where memory of the runtime is watched too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ROUNDS = 12
"""Runs of each program: a third of them good, a third bad, a third anything."""
_FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1"]
_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096",
    "TVM_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
_SECONDS = 120  # that a process may take for one program


class Finding(AssertionError):
    """A program that does not answer as it should; the message has the seed that draws it again."""


def _case(number: int) -> tuple[Any, str]:
    """The case of a seed, and the executor that runs it."""
    from tests.relay.frontend.index_cases import DYNAMIC, STATIC
    from tests.relay.frontend.size_cases import PLACES, SIZES

    rng = np.random.default_rng(number)
    draws: Sequence[Callable[[np.random.Generator], Any]] = (*STATIC, *DYNAMIC, *SIZES, *PLACES)
    draw = draws[int(rng.integers(len(draws)))]
    machine = draw in (*DYNAMIC, *SIZES) or rng.random() < 0.5
    return draw(rng), "vm" if machine else "graph"


def _inputs(case: Any, number: int) -> list[tuple[str, dict[str, Array], str]]:
    """Kind, inputs and the text that an error has, of each run."""
    rng = np.random.default_rng([number, 1])
    found = []
    for k in range(ROUNDS):
        kind, text = ("good", "bad", "wild")[k % 3], ""
        if hasattr(case, "indices"):
            name, value = case.indices, case.good(rng)
            if kind == "bad":
                value, number_of = case.bad(rng)
                text = f" {number_of} is out of range"
        else:
            name, wild = case.drawn, case.wild or case.bad
            make = {"good": case.good, "bad": case.bad or wild, "wild": wild}[kind]
            value, kind = make(rng), "wild" if kind == "bad" and case.bad is None else kind
        found.append((kind, {**case.data, name: np.asarray(value)}, text))
    return found


def _build(case: Any, executor: str, target: str, path: Path, flags: Sequence[str]) -> None:
    import tilewright as tvm
    from tilewright import relay

    mod, params = relay.frontend.from_onnx(case.model())
    with tvm.transform.PassContext(opt_level=3):
        make = relay.vm.compile if executor == "vm" else relay.build
        make(mod, target, params=params).export_library(str(path), **({"options": list(flags)} if flags else {}))


def _run(folder: Path) -> None:
    """Run the program in ``folder`` with its inputs; results and errors go beside them."""
    import tilewright as tvm
    from tilewright import runtime
    from tilewright.runtime.executor.graph import GraphModule

    about = json.loads((folder / "about.json").read_text())
    library = tvm.runtime.load_module(str(folder / "program.so"))
    if about["executor"] == "vm":
        machine: Any = runtime.vm.VirtualMachine(library, tvm.cpu())
    else:
        graph = GraphModule(library["default"](tvm.cpu()))

    def outputs(feeds: Mapping[str, Array]) -> list[Array]:
        if about["executor"] == "vm":
            made = machine.run(*[feeds[name] for name in about["order"]])
            return [y.numpy() for y in ([made] if hasattr(made, "numpy") else made)]
        graph.run(**feeds)
        return [graph.get_output(i).numpy() for i in range(graph.get_num_outputs())]

    for k in range(about["rounds"]):
        with np.load(folder / f"in{k}.npz") as arrays:
            feeds = {name: arrays[name] for name in arrays}
        print(k, file=sys.stderr, flush=True)
        try:
            np.savez(folder / f"out{k}.npz", *outputs(feeds))
        except tvm.TVMError as error:
            (folder / f"out{k}.txt").write_text(str(error))


def _start(folder: Path, sanitized: bool) -> str:
    """Run the program in a process of its own; return how that ended, or nothing."""
    environment = {**os.environ, **_ENVIRONMENT}
    if sanitized:
        found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
        environment["LD_PRELOAD"] = found.stdout.strip()
    command = [sys.executable, "-m", "tests.fuzz.indices", str(folder)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it runs for more than {_SECONDS} s"
    return "" if done.returncode == 0 else f"it ends with {done.returncode}: {done.stderr[-3000:]}"


def _judge(case: Any, folder: Path, rounds: Sequence[tuple[str, dict[str, Array], str]]) -> None:
    for k, (kind, feeds, text) in enumerate(rounds):
        message = folder / f"out{k}.txt"
        error = message.read_text() if message.exists() else ""
        drawn = feeds[case.indices if hasattr(case, "indices") else case.drawn]
        if kind == "bad":
            assert "'the_node'" in error and text in error, f"run {k}: {drawn.tolist()} gives {error or 'numbers'}"
        if kind != "good":
            continue
        assert not error, f"run {k}: {drawn.tolist()} gives {error}"
        with np.load(folder / f"out{k}.npz") as made:
            for found, expected in zip(made.values(), case.answer(drawn), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=f"run {k}: {drawn.tolist()}")


def try_one(number: int, sanitized: bool) -> str:
    """Draw the case of a seed, run it and judge it; return its name.

    Raises:
        Finding: it gives wrong numbers, no error or another one, reads or writes other memory, or does not end.
    """
    case, executor = _case(number)
    about = f"seed {number}, {case.name}, {executor}, {'C with sanitizers' if sanitized else 'LLVM'}"
    rounds = _inputs(case, number)
    with tempfile.TemporaryDirectory(prefix="tilewright-indices-") as name:
        folder = Path(name)
        _build(case, executor, "c" if sanitized else "llvm", folder / "program.so", _FLAGS if sanitized else ())
        order = [i.name for i in case.model().graph.input]
        (folder / "about.json").write_text(json.dumps({"executor": executor, "order": order, "rounds": len(rounds)}))
        for k, (_, feeds, _) in enumerate(rounds):
            np.savez(folder / f"in{k}.npz", **feeds)
        ended = _start(folder, sanitized)
        if ended:
            raise Finding(f"{about}: {ended}")
        try:
            _judge(case, folder, rounds)
        except AssertionError as error:
            raise Finding(f"{about}: {error}") from error
    return str(case.name)


def search(seconds: float, seed: int = 1) -> int:
    """Try cases for ``seconds``, every second one under the sanitizers; return how many."""
    end, number = time.monotonic() + seconds, seed * 1_000_000
    while time.monotonic() < end:
        try_one(number, number % 2 == 1)
        number += 1
    return number - seed * 1_000_000


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
