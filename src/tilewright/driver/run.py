"""``tilewright run``."""

from __future__ import annotations

import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.driver.board import Board
from tilewright.driver.dims import combinations, parse_dim_numbers
from tilewright.driver.images import ImageOptions
from tilewright.driver.inputs import make_inputs
from tilewright.driver.library import Library, open_library
from tilewright.driver.outputs import check_output, to_lists, write_outputs
from tilewright.driver.report import print_json, print_text
from tilewright.runtime.error import TVMError
from tilewright.runtime.state import next_of

_SHOWN_VALUES = 6


@dataclass(frozen=True)
class RunOptions:
    """Options of the command; ``sources`` and ``fill`` as for ``inputs.make_inputs``."""

    file: Path
    sources: list[str] | None
    fill: str | None
    image: ImageOptions
    output: Path | None
    threads: int
    compile_first: bool
    input_shape: list[str] | None
    board: Board | None
    dims: list[str] | None = None
    max_steps: int | None = None
    state: Path | None = None


def run_library(options: RunOptions, quiet: bool, verbose: bool, as_json: bool) -> None:
    """Run once; print a line for each output, and write them if requested."""
    with open_library(options.file, options.compile_first, options.input_shape, options.board) as opened:
        library = opened.at(next(combinations(parse_dim_numbers(options.dims))))
        library.place.function("runtime.config_threadpool")(0, options.threads)
        library.limit_steps(options.max_steps)
        if options.output is not None:
            check_output(options.output, len(library.outputs) - len(library.state))
        if options.state is not None:
            resume(library, options.state)
        inputs = make_inputs(library, options.sources, options.fill, options.image)
        if verbose:
            for name, array in inputs.items():
                print_text(_line(name, array))
        seconds, results = run_once(library, inputs)
        following = {name: results.pop(next_of(name)) for name in library.state}
        if options.state is not None:
            write_outputs(options.state, following)
        if options.output is not None:
            write_outputs(options.output, results)
    if as_json:
        print_json({"library": str(options.file), "seconds": seconds, "outputs": _json_outputs(results)})
    elif not quiet:
        for name, array in results.items():
            print_text(_line(name, array))
    if verbose:
        print_text(f"time: {seconds * 1e3:.3f} ms, the first run")


def resume(library: Library, file: Path) -> None:
    """Give a library the state that an earlier run wrote to a file; where there is none yet, it begins with its own.

    Raises:
        TVMError: the library keeps no state, or the file is no file of its.
    """
    if not library.state:
        raise TVMError(f"--state {file}: {library.path} keeps nothing from run to run")
    if file.suffix != ".npz":
        raise TVMError(f"--state {file}: a file of states is called *.npz")
    if not file.exists():
        return
    try:
        with np.load(file, allow_pickle=False) as values:
            found = {name: values[name] for name in values.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise TVMError(f"--state {file}: not a file that a run wrote, or cut off: {error}") from None
    if set(found) != set(library.state):
        raise TVMError(f"--state {file}: it has {', '.join(found)}; {library.path} keeps {', '.join(library.state)}")
    for name, value in found.items():
        library.executor.set_input(name, value)


def run_once(
    library: Library, inputs: dict[str, np.ndarray[Any, Any]]
) -> tuple[float, dict[str, np.ndarray[Any, Any]]]:
    """Run a library; return the seconds of the run, and the outputs by name."""
    executor = library.executor
    for name, array in inputs.items():
        executor.set_input(name, array)
    start = time.perf_counter()
    executor.run()
    seconds = time.perf_counter() - start
    return seconds, {name: executor.get_output(i).numpy() for i, name in enumerate(library.outputs)}


def _line(name: str, array: np.ndarray[Any, Any]) -> str:
    flat = array.reshape(-1)[:_SHOWN_VALUES]
    head = ", ".join(f"{v:.6g}" if array.dtype.kind == "f" else str(v) for v in flat)
    return f"{name}: {array.dtype} {array.shape}  [{head}{', ...' if array.size > _SHOWN_VALUES else ''}]"


def _json_outputs(results: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "values": to_lists(array)}
        for name, array in results.items()
    }
