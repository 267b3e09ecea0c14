"""Metadata of an exported library, read from the file without loading or running it.

This works for libraries of other machines too.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ._ffi import LIB, check_call
from .checksum import verify_checksum
from .error import TVMError
from .interface import Interface, Limits, TensorInfo
from .params import Reader

_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}
_DYNAMIC, _LOADED, _SYMBOLS, _CODE_FLAG = 3, 1, 11, 4
_FACTORIES = frozenset({"GraphExecutorFactory", "GraphRuntimeFactory"})
_ARRANGING = "__padding", "__headers"  # see native/src/array/params.c
_ARRANGED = (1 << 64) - 1  # see native/src/vm/program.c
_T = TypeVar("_T")


@dataclass(frozen=True)
class LibraryInfo:
    """A library's contents; sizes are in bytes.

    ``executor`` is "graph", "aot" or "vm". ``activation_bytes`` is what an executor takes beside inputs, parameters and
    ``prepared_bytes``, weights that it makes of others when it is loaded; None where that is known when it runs.
    ``made_by`` and ``target`` are "" where the library does not tell, and constants of a program have no names: they
    are numbered. ``weights_file`` is the name of the file, beside the library, that weights are in; "" where the
    library has them. ``kernel_calls`` of a program are those that its text has.
    """

    name: str
    executor: str
    made_by: str
    target: str
    machine: str
    cpu_features: tuple[str, ...]
    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    dimensions: dict[str, Limits]
    parameters: dict[str, TensorInfo]
    kernel_calls: int
    file_bytes: int
    code_bytes: int
    parameter_bytes: int
    weights_file: str
    prepared_bytes: int
    activation_bytes: int | None


def library_info(path: str | Path) -> LibraryInfo:
    """Read the metadata of an exported shared library.

    Raises:
        TVMError: the file is no shared library, is damaged, or holds no network.
    """
    return _read(Path(path), _library_of)


def library_graph(path: str | Path) -> str:
    """Return the graph JSON of an exported shared library, which Netron opens.

    Raises:
        TVMError: the file is no shared library, is damaged, or holds no graph.
    """
    return _read(Path(path), lambda elf, reader, size: _graph_of(reader))


def verify_library(path: str | Path) -> None:
    """Compare a library or archive with the checksum at its end, and weights in a file beside it with theirs.

    Nothing of the library runs.

    Raises:
        TVMError: a byte is another one than when it was written; there is no checksum; or the file of weights is
            missing, too short, another build's or damaged.
    """
    verify_checksum(path)
    try:
        library_info(path)
    except TVMError:
        return  # it is as it was written, and no network's: it has no weights
    verify_weights(path)


def verify_weights(path: str | Path) -> int:
    """Compare the checksums of a library's weights in the file beside it; return how many bytes those are.

    Raises:
        TVMError: the file is missing, too short, another build's or damaged.
    """
    info, tensors = _read(Path(path), lambda elf, reader, size: (_library_of(elf, reader, size), reader.apart))
    if not info.weights_file:
        return 0
    numbers = (ctypes.c_uint64 * (3 * len(tensors)))(*(number for tensor in tensors for number in tensor))
    check_call(LIB.TilewrightCheckWeights(os.fsencode(path), os.fsencode(info.weights_file), numbers, len(tensors)))
    return sum(nbytes for _, nbytes, _ in tensors)


def _read(file: Path, describe: Callable[[_Elf, Reader, int], _T]) -> _T:
    """Return what ``describe`` reads of a library: its ELF file, its constants and its bytes."""
    try:
        with file.open("rb") as stream:
            view = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        elf = _Elf(view)
        reader = Reader(elf.symbol("__tvm_dev_mblob"))
        return describe(elf, reader, len(view))
    except OSError as error:
        raise TVMError(f"{file}: {error.strerror}") from None
    except (ValueError, struct.error, LookupError, TypeError) as error:
        raise TVMError(f"{file}: not a library that Tilewright wrote, or damaged ({error})") from None


def _library_of(elf: _Elf, reader: Reader, file_bytes: int) -> LibraryInfo:
    found = _read_module(reader)
    features = elf.text("__tilewright_cpu_features")
    return LibraryInfo(
        machine=elf.machine,
        cpu_features=tuple(filter(None, features.split(","))),
        file_bytes=file_bytes,
        code_bytes=elf.code_bytes(),
        parameter_bytes=sum(p.nbytes for p in found["parameters"].values()),
        **found,
    )


def _graph_fields(graph: dict[str, Any], parameters: dict[str, TensorInfo], name: str) -> dict[str, Any]:
    """Return the fields of ``LibraryInfo`` from a graph."""
    metadata = graph.get("metadata") or {}
    tensors = _Tensors(graph)
    heads = [tensors.entry(node, index) for node, index, *_ in graph["heads"]]
    prepared, activations = tensors.memory()
    inputs = metadata.get("inputs", [n for n in tensors.arguments if n not in parameters])
    outputs = metadata.get("outputs", [f"output_{i}" for i in range(len(heads))])
    return {
        "name": name,
        "executor": "graph",
        "made_by": metadata.get("made_by", ""),
        "target": metadata.get("target", ""),
        "inputs": {n: tensors.info(tensors.arguments[n]) for n in inputs},
        "outputs": {n: tensors.info(entry) for n, entry in zip(outputs, heads, strict=True)},
        "dimensions": {},
        "parameters": parameters,
        "kernel_calls": sum(_is_kernel(node) for node in graph["nodes"]),
        "prepared_bytes": prepared,
        "activation_bytes": activations,
    } | _ahead_of_time_fields(metadata.get("program"))


def _ahead_of_time_fields(program: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields that differ where the graph's one node is a program that was compiled ahead of time."""
    if program is None:
        return {}
    constants = {name: TensorInfo(tuple(shape), dtype) for name, shape, dtype in program["constants"]}
    return {
        "executor": "aot",
        "kernel_calls": program["kernel_calls"],
        "prepared_bytes": 0,
        "activation_bytes": program["workspace_bytes"],
        "parameters": constants,
    }


def _program_fields(reader: Reader) -> dict[str, Any]:
    """Return the fields of ``LibraryInfo`` from a program of the virtual machine; see ``runtime/bytecode.py``."""
    from .bytecode import Opcode, read_code

    end = reader.u64() + reader.at
    start = reader.at
    reader.u64()
    reader.text()
    reader.texts()
    head = bytes(reader.view[start : reader.at])
    constants = _constants(reader)
    reader.take(8 * reader.u64())  # a device for each
    code = read_code(head, bytes(reader.view[reader.at : end]))
    described = code.interface_constant
    text = bytes(constants[described][1]).decode() if described is not None else ""
    interface = Interface.parse(text)
    return {
        "name": "main",
        "executor": "vm",
        "made_by": interface.made_by,
        "target": interface.target,
        "inputs": interface.inputs,
        "outputs": interface.outputs,
        "dimensions": interface.limits,
        "parameters": {f"constant {i}": info for i, (info, _) in enumerate(constants) if i != described},
        "kernel_calls": sum(i.opcode == Opcode.INVOKE_PACKED for f in code.functions for i in f.instructions),
        "prepared_bytes": 0,
        "activation_bytes": None,
    }


def _constants(reader: Reader) -> list[tuple[TensorInfo, memoryview]]:
    """Return a program's constants and their elements; many bytes are arranged as parameters of a graph are."""
    count = reader.u64()
    if count != _ARRANGED:
        return [_info_of(*reader.skip_array()) for _ in range(count)]
    reader.u64()
    found = [(name, _info_of(*reader.skip_array())) for name in reader.texts()]
    by_number = {int(name): constant for name, constant in found if name not in _ARRANGING}
    return [by_number[number] for number in range(len(by_number))]


def _info_of(shape: tuple[int, ...], dtype: Any, elements: memoryview) -> tuple[TensorInfo, memoryview]:
    return TensorInfo(shape, str(dtype)), elements


def _is_kernel(node: dict[str, Any]) -> bool:
    attrs = node.get("attrs", {})
    return node["op"] != "null" and attrs["func_name"] not in ("__nop", "__view") and attrs.get("run_once") != "1"


class _Tensors:
    """The tensors ("entries") of a graph JSON."""

    def __init__(self, graph: dict[str, Any]) -> None:
        attrs = graph["attrs"]
        self.rows = graph["node_row_ptr"]
        self.shapes, self.dtypes, self.storage = (attrs[key][1] for key in ("shape", "dltype", "storage_id"))
        self.offsets = attrs["storage_offset"][1] if "storage_offset" in attrs else [0] * len(self.shapes)
        nodes = graph["nodes"]
        self.arguments = {nodes[i]["name"]: self.rows[i] for i in graph["arg_nodes"]}
        once = [i for i, node in enumerate(nodes) if node.get("attrs", {}).get("run_once") == "1"]
        self.prepared = {entry for i in once for entry in range(self.rows[i], self.rows[i + 1])}

    def entry(self, node: int, index: int) -> int:
        """The entry of a node's output."""
        return int(self.rows[node]) + index

    def info(self, entry: int) -> TensorInfo:
        """Shape and dtype of an entry."""
        return TensorInfo(tuple(self.shapes[entry]), self.dtypes[entry])

    def memory(self) -> tuple[int, int]:
        """Return the bytes of prepared weights, and of all other storage that is no argument's."""
        ends: dict[int, int] = {}
        for entry, (storage, offset) in enumerate(zip(self.storage, self.offsets, strict=True)):
            ends[storage] = max(ends.get(storage, 0), offset + self.info(entry).nbytes)
        arguments = {self.storage[entry] for entry in self.arguments.values()}
        prepared = {self.storage[entry] for entry in self.prepared} - arguments
        return sum(ends[s] for s in prepared), sum(size for s, size in ends.items() if s not in arguments | prepared)


def _read_module(reader: Reader) -> dict[str, Any]:
    """Return the fields of ``LibraryInfo`` from the model in a module table."""
    key, weights_file = _find_model(reader)
    if key == "VMExecutable":
        return _program_fields(reader) | {"weights_file": weights_file}
    graph = json.loads(reader.text())
    reader.u64()
    arrays = [(name, _info_of(*reader.skip_array())[0]) for name in reader.texts()]
    parameters = {name: info for name, info in arrays if name not in _ARRANGING}
    return _graph_fields(graph, parameters, reader.text()) | {"weights_file": weights_file}


def _graph_of(reader: Reader) -> str:
    """Return the graph JSON of the model in a module table."""
    key, _ = _find_model(reader)
    if key not in _FACTORIES:
        raise ValueError("it holds a program of the virtual machine, no graph")
    return reader.text()


def _find_model(reader: Reader) -> tuple[str, str]:
    """Return the kind of the model in a module table and its file of weights; see native/src/module/blob.c."""
    reader.u64()
    weights_file = ""
    for _ in range(reader.u64()):
        key = reader.text()
        if key == "_weights":
            weights_file = reader.text()
        elif key == "VMExecutable" or key in _FACTORIES:
            return key, weights_file
        elif key != "_lib":
            break
    raise ValueError("it holds no network")


class _Section(NamedTuple):
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


class _Elf:
    """A shared library in ELF's little-endian form of 64 or 32 bits."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        if bytes(view[:4]) != b"\x7fELF":
            raise ValueError("it does not begin as an ELF file does")
        self.wide = view[4] == 2
        kind, machine = struct.unpack_from("<HH", view, 16)
        if view[5] != 1 or kind != _DYNAMIC:
            raise ValueError("it is no shared library of a little-endian machine")
        self.machine = _MACHINES.get(machine, f"machine {machine}")
        header = struct.unpack_from("<QQQIHHHHHH" if self.wide else "<IIIIHHHHHH", view, 24)
        _, self.segments, sections, _, _, self.segment_size, self.num_segments, size, count, _ = header
        self.sections = [self._section(sections + i * size) for i in range(count)]

    def _section(self, at: int) -> _Section:
        fields = struct.unpack_from("<IIQQQQI" if self.wide else "<IIIIIII", self.view, at)
        return _Section(*fields[1:])

    def code_bytes(self) -> int:
        """Size of the sections that are executed."""
        return sum(s.size for s in self.sections if s.flags & _CODE_FLAG)

    def _offset(self, address: int) -> tuple[int, int]:
        """Return the file offset of an address, and the end of its mapping."""
        for i in range(self.num_segments):
            at = self.segments + i * self.segment_size
            if self.wide:
                kind, _, offset, start, _, size = struct.unpack_from("<IIQQQQ", self.view, at)
            else:
                kind, offset, start, _, size = struct.unpack_from("<IIIII", self.view, at)
            if kind == _LOADED and start <= address < start + size:
                return offset + address - start, offset + size
        raise ValueError("a symbol lies outside of the file")

    def _address(self, wanted: str) -> int | None:
        symbol, size = ("<IBBHQQ", 24) if self.wide else ("<IIIBBH", 16)
        name = wanted.encode() + b"\0"
        for table in (s for s in self.sections if s.kind == _SYMBOLS):
            names = self.sections[table.link].offset
            for at in range(table.offset, table.offset + table.size, size):
                fields = struct.unpack_from(symbol, self.view, at)
                start = names + fields[0]
                if bytes(self.view[start : start + len(name)]) == name:
                    return int(fields[4] if self.wide else fields[1])
        return None

    def symbol(self, name: str) -> memoryview:
        """Return the file from a symbol on, to the end of its mapping."""
        address = self._address(name)
        if address is None:
            raise ValueError(f"it has no symbol {name}")
        start, end = self._offset(address)
        return self.view[start:end]

    def text(self, name: str) -> str:
        """Return the NUL-terminated text at a symbol; "" if there is no such symbol."""
        if self._address(name) is None:
            return ""
        view = self.symbol(name)
        return bytes(view[: 1 << 16]).partition(b"\0")[0].decode()
