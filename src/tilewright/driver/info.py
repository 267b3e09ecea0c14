"""``tilewright info``: description of a compiled library, without running it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tilewright.driver.options import check_is_file, check_writable, format_bytes
from tilewright.driver.report import print_json, print_rows
from tilewright.runtime.interface import Interface, TensorInfo
from tilewright.runtime.library_info import LibraryInfo, library_graph, library_info, verify_library
from tilewright.runtime.partial_files import write_whole


def show_info(library: Path, as_json: bool, verify: bool = False, graph: Path | None = None) -> None:
    """Print a library's metadata; with ``verify``, compare it and its weights with their checksums first.

    Its graph JSON goes to ``graph``.
    """
    check_is_file(library)
    if graph is not None:
        check_writable(graph)
        write_whole(graph, library_graph(library))
    if verify:
        verify_library(library)
    if library.suffix == ".tar" and verify:
        print_json({"library": str(library)}) if as_json else print_rows([("archive", f"{library}  (as written)")])
        return
    info = library_info(library)
    if as_json:
        print_json({"library": str(library)} | asdict(info))
    else:
        print_rows([("library", f"{library}  ({format_bytes(info.file_bytes)})"), *_rows(info)])


def _rows(info: LibraryInfo) -> list[tuple[str, str]]:
    rows = [("made by", info.made_by or "unknown"), ("target", info.target or "unknown"), ("machine", info.machine)]
    rows.append(("CPU features needed", ", ".join(info.cpu_features) or "none beyond the baseline"))
    rows += [("input", _tensor(name, tensor)) for name, tensor in info.inputs.items()]
    rows += [("output", _tensor(name, tensor)) for name, tensor in info.outputs.items()]
    described = Interface(info.inputs, info.outputs, info.dimensions).described
    rows += [("dimension", described(name)) for name in info.dimensions]
    place = f", in {info.weights_file}" if info.weights_file else ""
    memory = "known when it runs" if info.activation_bytes is None else format_bytes(info.activation_bytes)
    rows += [
        ("executor", {"graph": "graph", "aot": "ahead of time", "vm": "virtual machine"}[info.executor]),
        ("kernel calls", str(info.kernel_calls)),
        ("code", format_bytes(info.code_bytes)),
        ("weights", f"{format_bytes(info.parameter_bytes)} in {len(info.parameters)} tensors{place}"),
    ]
    if info.prepared_bytes:
        rows.append(("prepared weights", f"{format_bytes(info.prepared_bytes)}, made when it is loaded"))
    rows.append(("activation memory", memory))
    return rows


def _tensor(name: str, tensor: TensorInfo) -> str:
    return f"{name}: {tensor.dtype} {tensor.dims}"
