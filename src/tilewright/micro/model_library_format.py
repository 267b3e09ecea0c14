"""TVM 0.8's Model Library Format: a network as an archive that project generators for boards take apart.

::

    metadata.json                       names, sizes of memory, targets
    codegen/host/src/NAME_lib0.c, ...   C sources            codegen/host/lib/NAME_lib0.o, ...   objects
    codegen/host/include/tvmgen_NAME.h  the C interface of an ahead-of-time program
    executor-config/graph/graph.json    the graph, of a network for the graph executor
    parameters/NAME.params              weights
    src/relay.txt                       the network

For code without a runtime ``tvmgen_NAME.h`` declares ``tvmgen_NAME_run(inputs, outputs)``, as in TVM 0.8, which uses a
workspace of its own; ``tvmgen_NAME_run_in`` takes one.
"""

from __future__ import annotations

import datetime
import io
import json
import math
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.memory import Buffer
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.micro.tvm_interface import c_interface, has_c_interface, packed_interface
from tilewright.runtime.checksum import add_checksum
from tilewright.runtime.dtype import DataType
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule
from tilewright.runtime.executor.factory import GraphExecutorFactoryModule
from tilewright.runtime.export import ExportError
from tilewright.runtime.module import Module
from tilewright.runtime.params import save_param_dict
from tilewright.runtime.partial_files import whole_file
from tilewright.target.build import OperatorModule
from tilewright.target.codegen.c.code import LINK_RUNTIME
from tilewright.target.target import Target
from tilewright.tir.expr import Var
from tilewright.tir.function import PrimFunc

VERSION = 5
"""The version of the format: that of TVM 0.8."""

MAIN = "__tvm_main__"
_LINKED = f"#define {LINK_RUNTIME} /* nobody loads this: it calls the runtime's functions by their names */\n"

Factory = GraphExecutorFactoryModule | AOTExecutorFactoryModule
Exportable = Factory | OperatorModule


class UnsupportedInModelLibraryFormatError(TVMError):
    """The format has no place for a module of this kind."""


def export_model_library_format(module: Exportable, file_name: str | Path) -> Path:
    """Write a compiled network, or operator, in the Model Library Format.

    Parameters
    ----------
    module : the result of ``relay.build`` for the executors ``graph`` or ``aot``, or of ``tvm.build``
    file_name : the ``.tar`` file

    Returns
    -------
    The path of the file, which appears whole or not at all.

    Raises
    ------
    UnsupportedInModelLibraryFormatError : a part of the network is neither C nor machine code of LLVM
    ExportError : the file cannot be written
    """
    if not isinstance(module, Exportable):
        raise UnsupportedInModelLibraryFormatError(
            "the format takes results of tvm.build, and of relay.build for the executors graph and aot, not a "
            f"{type(module).__name__}"
        )
    files = dict(_operator_files(module) if isinstance(module, OperatorModule) else _files(module))
    target = Path(file_name).absolute()
    try:
        with whole_file(target) as partial, tarfile.open(partial, "w") as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(f"./{name}")
                entry.size, entry.mode = len(data), 0o644
                entry.uname = entry.gname = "root"
                tar.addfile(entry, io.BytesIO(data))
            tar.close()
            add_checksum(partial)
    except OSError as error:
        raise ExportError(f"cannot write {file_name}: {error.strerror}") from error
    return target


def _files(factory: Factory) -> Iterator[tuple[str, bytes]]:
    name = factory.libmod_name
    yield "metadata.json", _json(_metadata(factory))
    for path, data in _code(factory):
        yield f"codegen/host/{path}", data
    yield f"parameters/{name}.params", bytes(save_param_dict(factory.get_params()))
    yield "src/relay.txt", str(factory.ir_mod).encode()
    if isinstance(factory, GraphExecutorFactoryModule):
        yield "executor-config/graph/graph.json", factory.get_graph_json().encode()


def _operator_files(module: OperatorModule) -> Iterator[tuple[str, bytes]]:
    """The files of an operator: its code, and by device the functions that it was made from."""
    memory, targets = {}, {}
    for target, functions in module.ir_module_by_target.items():
        targets[str(target.device_type)] = str(target)
        for func in (f for f in functions.functions.values() if isinstance(f, PrimFunc)):
            memory[str(GLOBAL_SYMBOL.of(func))] = [_argument(p, func.buffer_map.get(p)) for p in func.params]
        yield f"src/tir-{target.device_type}.txt", str(functions).encode()
    yield "metadata.json", _json(_description(module.name or "default", memory, targets, [], "operator"))
    for path, data in _library(module, ""):
        yield f"codegen/host/{path}", data


def _argument(param: Var, buffer: Buffer | None) -> dict[str, Any]:
    """Return the description of a tensor or a number; extents that are known when it runs are texts."""
    found = buffer or param
    shape = [_extent(d) for d in (buffer.shape if buffer else ())]
    described: dict[str, Any] = {"dtype": found.dtype, "shape": shape, "input_binding": found.name}
    if all(isinstance(d, int) for d in shape):
        described["size_bytes"] = math.prod(shape) * DataType(found.dtype).itemsize
    return described


def _extent(extent: PrimExpr) -> int | str:
    if isinstance(extent, IntImm):
        return extent.value
    return extent.name if isinstance(extent, Var) else str(extent)


def _code(factory: Factory) -> Iterator[tuple[str, bytes]]:
    """Sources, objects and the header of a network."""
    name = factory.libmod_name
    if isinstance(factory, AOTExecutorFactoryModule) and not factory.is_standalone:
        raise UnsupportedInModelLibraryFormatError(
            f"an ahead-of-time program for {factory.target} is a library for Tilewright's runtime; build it for "
            "c -runtime=c, which has its weights in C, or for the executor graph"
        )
    if not isinstance(factory, AOTExecutorFactoryModule):
        yield from _library(factory.get_lib(), f"{name}_")
        return
    symbol = f"tvmgen_{name}"
    if has_c_interface(factory):
        header, sources = c_interface(factory, symbol)
        yield f"include/{symbol}.h", header.encode()
    else:
        sources = packed_interface(factory, symbol)
    for index, text in enumerate(sources):
        yield f"src/{name}_lib{index}.c", text.encode()


def _library(library: Module, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Sources and objects of a library and what it imports."""
    counts = {"src": 0, "lib": 0}
    for module in _modules(library):
        code: Any = module.compiled_code
        if code is None:
            raise UnsupportedInModelLibraryFormatError(
                f"Don't know how to export non-c or non-llvm modules; found: {module.type_key}"
            )
        texts = code.c_sources() if hasattr(code, "c_sources") else []
        folder, suffix = ("src", getattr(code, "source_suffix", "c")) if texts else ("lib", "o")
        for data in [f"{_LINKED}{text}".encode() for text in texts] or code.objects():
            yield f"{folder}/{prefix}lib{counts[folder]}.{suffix}", data
            counts[folder] += 1


def _populate_codegen_dir(library: Module, codegen_dir: str | Path, module_name: str | None = None) -> None:
    """Write the sources and objects of a library into a folder, as TVM 0.8's function of this name does."""
    for path, data in _library(library, f"{module_name}_" if module_name else ""):
        place = Path(codegen_dir) / "host" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def _modules(root: Module) -> Iterator[Module]:
    """The modules of a library with code; one that only keeps constants has none."""
    if root.type_key != "metadata":
        yield root
    for module in root.imported_modules:
        yield from _modules(module)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True).encode()


def _description(
    name: str, memory: Mapping[str, Any], targets: Mapping[str, str], executors: Sequence[str], style: str
) -> dict[str, Any]:
    now = datetime.datetime.now()
    return {
        "version": VERSION,
        "model_name": name,
        "export_datetime": now.strftime("%Y-%m-%d %H:%M:%SZ"),  # TVM's readers compare it with local time
        "memory": memory,
        "target": targets,
        "executors": executors,
        "style": style,
    }


def _metadata(factory: Factory) -> dict[str, Any]:
    is_aot = isinstance(factory, AOTExecutorFactoryModule)
    targets = {1: factory.target} if isinstance(factory.target, Target) else dict(factory.target)
    memory: dict[str, Any] = {"functions": _functions(factory)}
    if isinstance(factory, GraphExecutorFactoryModule):
        memory["sids"] = _storages(json.loads(factory.get_graph_json()))
    executors = ["aot" if is_aot else "graph"]
    names = {str(device): str(target) for device, target in targets.items()}
    return _description(factory.libmod_name, memory, names, executors, "full-model")


def _storages(graph: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the size of each storage: of the largest end of a tensor in it."""
    attrs = graph["attrs"]
    storages, shapes, dtypes = (attrs[key][1] for key in ("storage_id", "shape", "dltype"))
    offsets = attrs.get("storage_offset", (None, [0] * len(storages)))[1]
    sizes: dict[int, int] = {}
    for storage, shape, dtype, offset in zip(storages, shapes, dtypes, offsets, strict=True):
        nbytes = int(np.prod(shape, dtype=np.int64)) * DataType(dtype).itemsize
        sizes[storage] = max(sizes.get(storage, 0), offset + nbytes)
    bound = {storages[graph["node_row_ptr"][i]]: graph["nodes"][i]["name"] for i in graph["arg_nodes"]}
    found = []
    for storage, nbytes in sizes.items():
        entry: dict[str, Any] = {"storage_id": storage, "size_bytes": nbytes}
        found.append(entry | ({"input_binding": bound[storage]} if storage in bound else {}))
    return found


def _functions(factory: Factory) -> dict[str, Any]:
    """Return the bytes that each kernel takes for itself, and the whole network."""
    info = factory.function_metadata
    main = info[MAIN]
    kernels = {name: found for name, found in info.items() if name != MAIN and found.tir_primfuncs}
    operators = [
        {"function_name": name, "workspace": [_workspace(t, n) for t, n in found.workspace_sizes.items()]}
        for name, found in kernels.items()
    ]
    whole = []
    for target, own in main.workspace_sizes.items():
        apart = not (isinstance(factory, AOTExecutorFactoryModule) and factory.is_standalone)  # kernels' own memory
        most = max((found.workspace_sizes.get(target, 0) for found in kernels.values() if apart), default=0)
        sizes = {"constants_size_bytes": main.constant_sizes[target], "io_size_bytes": main.io_sizes[target]}
        whole.append(_workspace(target, own + most) | sizes)
    return {"operator_functions": operators, "main": whole}


def _workspace(target: Target, nbytes: int) -> dict[str, int]:
    return {"device": target.device_type, "workspace_size_bytes": int(nbytes)}
