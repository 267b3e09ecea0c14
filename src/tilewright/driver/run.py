"""``tilewright run`` and ``tilewright bench``."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tilewright.driver.options import check_writable
from tilewright.runtime.device import cpu
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.module import load_module
from tilewright.runtime.ndarray import numpy_dtype

_FILLS = ("random", "zeros", "ones")


def load_graph(library: Path) -> tuple[GraphModule, dict[str, tuple[tuple[int, ...], str]]]:
    """The executor of a library, and shape and dtype of each input."""
    if not library.is_file():
        raise TVMError(f"{library}: no such file")
    module = load_module(str(library))
    executor = GraphModule(module["default"](cpu(0)))
    params = {module["get_param_name"](i) for i in range(module["get_num_params"]())}
    return executor, _graph_inputs(json.loads(module["get_graph_json"]()), params)


def _graph_inputs(graph: dict[str, Any], params: set[str]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Inputs that are no parameters: those that the library holds no value for."""
    row_ptr, attrs = graph["node_row_ptr"], graph["attrs"]
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for node in graph["arg_nodes"]:
        name = graph["nodes"][node]["name"]
        if name not in params:
            entry = row_ptr[node]
            found[name] = tuple(attrs["shape"][1][entry]), attrs["dltype"][1][entry]
    return found


def make_inputs(
    wanted: dict[str, tuple[tuple[int, ...], str]], file: Path | None, fill: str | None
) -> dict[str, np.ndarray[Any, Any]]:
    """An array for each input: from the file, and made up for those it lacks when ``fill`` is given."""
    if fill is not None and fill not in _FILLS:
        raise TVMError(f"--fill takes {', '.join(_FILLS)}, not {fill!r}")
    given = _read_npz(file) if file else {}
    unknown = [name for name in given if name not in wanted]
    if unknown:
        raise TVMError(f"{file}: the library has no input {unknown[0]!r}; its inputs are {_describe(wanted)}")
    missing = [name for name in wanted if name not in given]
    if missing and fill is None:
        raise TVMError(f"no value for the input {missing[0]!r}; give --inputs or --fill. Inputs: {_describe(wanted)}")
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, (shape, dtype) in wanted.items():
        arrays[name] = given[name] if name in given else _filled(shape, dtype, fill or "zeros", rng)
        found = arrays[name]
        if found.shape != shape or found.dtype != numpy_dtype(dtype):
            raise TVMError(
                f"input {name!r}: expected {dtype} of shape {shape}, got {found.dtype} of shape {found.shape}"
            )
    return arrays


def _filled(shape: tuple[int, ...], dtype: str, fill: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if fill != "random":
        return np.full(shape, 0 if fill == "zeros" else 1, dtype=numpy_dtype(dtype))
    if dtype.startswith(("float", "bfloat")):
        return rng.random(shape, dtype="float32").astype(numpy_dtype(dtype))
    return rng.integers(0, 2, shape).astype(numpy_dtype(dtype))


def _describe(wanted: dict[str, tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{name} ({dtype} {shape})" for name, (shape, dtype) in wanted.items())


def _read_npz(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise TVMError(f"{file}: no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise TVMError(f"{file}: not an .npz file of arrays ({error})") from None


def _write_npz(file: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write beside the target and rename, so that a failure leaves nothing half-written."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def run_library(library: Path, inputs: Path | None, fill: str | None, output: Path | None) -> None:
    """Run once; print a line for each output, and write them when asked."""
    if output is not None:
        check_writable(output)
    executor, wanted = load_graph(library)
    for name, array in make_inputs(wanted, inputs, fill).items():
        executor.set_input(name, array)
    executor.run()
    results = {f"output_{i}": executor.get_output(i).numpy() for i in range(executor.get_num_outputs())}
    for name, array in results.items():
        flat = array.reshape(-1)
        head = ", ".join(f"{v:.6g}" if array.dtype.kind == "f" else str(v) for v in flat[:6])
        print(f"{name}: {array.dtype} {array.shape}  [{head}{', ...' if flat.size > 6 else ''}]")
    if output is not None:
        _write_npz(output, results)


def bench_library(library: Path, repeat: int, seconds: float) -> None:
    """Measure and print the latency."""
    executor, wanted = load_graph(library)
    for name, array in make_inputs(wanted, None, "random").items():
        executor.set_input(name, array)
    executor.run()
    result = executor.benchmark(cpu(0), repeat=repeat, number=1, min_repeat_ms=int(seconds * 1000))
    table = Table(box=None, pad_edge=False)
    for heading in ("median", "mean", "min", "max", "std"):
        table.add_column(f"{heading} (ms)", justify="right")
    table.add_row(*(f"{getattr(result, k) * 1e3:.3f}" for k in ("median", "mean", "min", "max", "std")))
    Console().print(table)
