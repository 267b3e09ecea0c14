"""Metadata of each function of a library: sizes in bytes, and the functions that it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType
from tilewright.relay.backend.graph_codegen import Graph
from tilewright.relay.backend.lowered import kernels
from tilewright.relay.backend.target_map import TargetMap
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import HASH, TARGET, VIEW
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.transform.common import open_children
from tilewright.relay.transform.fusion.label_ops import hash_of
from tilewright.relay.visitor import is_closed, post_order
from tilewright.target.kept_kernels import workspace_bytes
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc

MAIN = "__tvm_main__"


@dataclass(frozen=True)
class FunctionInfo:
    """A function by target: bytes of workspace, of inputs and outputs, and of constants; its TIR and Relay forms.

    The workspace of a kernel is what it allocates beside the stack, at its peak; that of ``__tvm_main__`` the memory of
    all intermediate tensors on the target's device.
    """

    workspace_sizes: dict[Target, int] = field(default_factory=dict)
    io_sizes: dict[Target, int] = field(default_factory=dict)
    constant_sizes: dict[Target, int] = field(default_factory=dict)
    tir_primfuncs: dict[Target, PrimFunc] = field(default_factory=dict)
    relay_primfuncs: dict[Target, Function] = field(default_factory=dict)


def function_metadata(
    mod: IRModule,
    lowered: IRModule,
    graph: Graph,
    targets: TargetMap,
    pools: Mapping[str, int] | None = None,
) -> dict[str, FunctionInfo]:
    """The functions of a library by name: each kernel, and ``__tvm_main__`` for the network.

    Parameters
    ----------
    mod : the module of fused functions that ``lowered`` was made from
    targets : what each part of main runs on
    pools : by kernel the bytes that it takes of a caller's buffer; by default kernels ask the runtime for memory
    """
    main: Function = mod["main"]
    called = (e.op for e in post_order(main.body, open_children) if isinstance(e, Call) and is_closed(e.op))
    sources = {hash_of(func): func for func in called if isinstance(func, Function) and not VIEW.has(func)}
    info = {}
    for var, func in kernels(lowered).items():
        name = var.name_hint
        own = workspace_bytes(func) if pools is None else pools[name]
        info[name] = _kernel_info(func, sources[HASH.of(func)], own)
    info[MAIN] = _main_info(main, graph, targets)
    return info


def _main_info(main: Function, graph: Graph, targets: TargetMap) -> FunctionInfo:
    inputs = [n for n in graph.nodes if n.op == "null"]
    ends = [n for n in inputs if n.name not in graph.params]
    io_sizes = [(n.device, tensor_bytes(n.types[0])) for n in ends]
    io_sizes += [(graph.nodes[e.node].device, tensor_bytes(graph.nodes[e.node].types[e.index])) for e in graph.heads]
    constants = [(n.device, graph.params[n.name].nbytes) for n in inputs if n.name in graph.params]
    workspace = graph.storage.bytes_by_device.items() if graph.storage.offsets is not None else _storages(graph)
    return FunctionInfo(
        _by_target(workspace, targets),
        _by_target(io_sizes, targets),
        _by_target(constants, targets),
        relay_primfuncs={targets.default: main},
    )


def _by_target(sizes: Iterable[tuple[int, int]], targets: TargetMap) -> dict[Target, int]:
    """Sums of (device, bytes) for each target."""
    found = dict.fromkeys(targets.targets.values(), 0)
    for device, nbytes in sizes:
        found[targets.on(device)] += nbytes
    return found


def _storages(graph: Graph) -> list[tuple[int, int]]:
    """Return the device and the bytes of each storage of intermediate tensors alone, as an executor allocates it."""
    rows, storage = graph.rows(), graph.storage.storage
    ends = {storage[rows[i]] for i, node in enumerate(graph.nodes) if node.op == "null"}
    ends |= {storage[rows[head.node] + head.index] for head in graph.heads}
    sizes: dict[int, tuple[int, int]] = {}
    for row, node in zip(rows, graph.nodes, strict=False):
        for number, type_ in zip(storage[row:], node.types, strict=False):
            if number not in ends:
                sizes[number] = (node.device, max(sizes.get(number, (0, 0))[1], tensor_bytes(type_)))
    return list(sizes.values())


def _kernel_info(func: PrimFunc, source: Function, workspace: int) -> FunctionInfo:
    target: Target = TARGET.of(func)
    buffers = [func.buffer_map[p] for p in func.params]
    ends = sum(tensor_bytes(TensorType(b.shape, b.dtype)) for b in buffers)
    return FunctionInfo({target: workspace}, {target: ends}, {target: 0}, {target: func}, {target: source})
