"""What is known of each function of a library: sizes in bytes, and the functions that it was made from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import TensorType
from tilewright.relay.backend.data_flow import tensor_types
from tilewright.relay.backend.graph_codegen import Graph
from tilewright.relay.backend.lowered import kernels
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.transform.common import is_closed, open_children
from tilewright.relay.transform.label_ops import hash_of
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate
from tilewright.tir.stmt_functor import post_order_visit

MAIN = "__tvm_main__"


@dataclass(frozen=True)
class FunctionInfo:
    """A function by target: bytes of workspace, of inputs and outputs, and of constants; its TIR and Relay forms.

    The workspace of a kernel is the sum of what it allocates; that of ``__tvm_main__`` the memory of all intermediate
    tensors.
    """

    workspace_sizes: dict[Target, int] = field(default_factory=dict)
    io_sizes: dict[Target, int] = field(default_factory=dict)
    constant_sizes: dict[Target, int] = field(default_factory=dict)
    tir_primfuncs: dict[Target, PrimFunc] = field(default_factory=dict)
    relay_primfuncs: dict[Target, Function] = field(default_factory=dict)


def function_metadata(mod: IRModule, lowered: IRModule, graph: Graph, target: Target) -> dict[str, FunctionInfo]:
    """The functions of a library by name: each kernel, and ``__tvm_main__`` for the network.

    Parameters
    ----------
    mod : the module of fused functions that ``lowered`` was made from
    target : what main runs on
    """
    main: Function = mod["main"]
    called = (e.op for e in post_order(main.body, open_children) if isinstance(e, Call) and is_closed(e.op))
    sources = {hash_of(func): func for func in called if isinstance(func, Function)}
    info = {v.name_hint: _kernel_info(func, sources[func.attrs["hash"]]) for v, func in kernels(lowered).items()}
    ends = [*(t for p in main.params for t in tensor_types(p.checked_type)), *tensor_types(main.body.checked_type)]
    info[MAIN] = FunctionInfo(
        {target: graph.placement.activation_bytes},
        {target: sum(map(tensor_bytes, ends))},
        {target: sum(array.nbytes for array in graph.params.values())},
        relay_primfuncs={target: main},
    )
    return info


def _kernel_info(func: PrimFunc, source: Function) -> FunctionInfo:
    target: Target = func.attrs["target"]
    buffers = [func.buffer_map[p] for p in func.params]
    ends = sum(tensor_bytes(TensorType(b.shape, b.dtype)) for b in buffers)
    return FunctionInfo({target: workspace_bytes(func)}, {target: ends}, {target: 0}, {target: func}, {target: source})


def workspace_bytes(func: PrimFunc) -> int:
    """The sum of what a function allocates, where its extents are known."""
    sizes: list[int] = []

    def visit(node: object) -> None:
        if isinstance(node, Allocate):
            extents = [int(e) for e in node.extents if isinstance(e, IntImm)]
            if len(extents) == len(node.extents):
                sizes.append(math.prod(extents) * dt.nbytes(node.dtype))

    post_order_visit(func.body, visit)
    return sum(sizes)
