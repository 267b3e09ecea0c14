"""Ahead-of-time programs as libraries: what the runtime loads, and runs by the interface of the graph executor.

The library's graph has one node: a packed function that checks its arguments, takes a workspace from the runtime, and
calls the program's main function (``aot_main.py``)::

    tvmgen_default_run(x, constants, output)
      allocate(workspace, int8, [workspace_bytes])
      if tvmgen_default_run_model(x.data, output.data, constants.data, workspace) != 0 { fail }
"""

from __future__ import annotations

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import PointerType, PrimType, TensorType
from tilewright.relay.backend.aot_main import AotProgram
from tilewright.relay.backend.graph_codegen import Graph, GraphNode, StoragePlan
from tilewright.relay.data_flow import Entry
from tilewright.runtime.executor.aot import AotTensor
from tilewright.runtime.ndarray import array
from tilewright.target.target import Target
from tilewright.tir.expr import Call, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, Evaluate, IfThenElse, Stmt
from tilewright.tir.transform.make_packed_api import make_packed_api

_CONSTANTS = "constants"


def packed_main(program: AotProgram, name: str, target: Target) -> PrimFunc:
    """Return the packed function ``name`` that runs a program: inputs, the block of constants if any, outputs."""
    layout = program.layout
    inputs, outputs = ([_buffer(t) for t in group] for group in (layout.inputs, layout.outputs))
    block = decl_buffer((layout.constant_bytes,), "uint8", _CONSTANTS, data_alignment=64)
    constants = [block] if layout.constant_bytes else []
    pools = [Var(pool.name, PointerType(PrimType("int8"))) for pool in layout.pools]
    pointers = [b.data for b in (*inputs, *outputs)]
    pointers += [block.data if constants else pools[0], *pools]  # a program without constants reads none
    status = Call("int32", "tir.call_extern", (StringImm(layout.symbol), *pointers))
    failed = ops.not_equal(status, IntImm("int32", 0))
    body: Stmt = IfThenElse(failed, Evaluate(Call("int32", "tir.tvm_throw_last_error", ())))
    for var, pool in zip(pools, layout.pools, strict=True):
        body = Allocate(var, "int8", [max(pool.nbytes, 1)], ops.const(True, "bool"), body)
    attrs = {GLOBAL_SYMBOL.key: name, TARGET.key: target}
    return make_packed_api(PrimFunc([*inputs, *constants, *outputs], body, PrimType("void"), {}, attrs))


def graph_of(program: AotProgram, name: str, metadata: dict[str, object]) -> Graph:
    """Return the graph that calls ``packed_main``."""
    layout = program.layout
    nodes = [GraphNode("null", t.name, (_type(t),)) for t in layout.inputs]
    params = {}
    if layout.constant_bytes:
        block = _CONSTANTS + "_" * sum(t.name.startswith(_CONSTANTS) for t in layout.inputs)
        params[block] = array(np.frombuffer(layout.constant_block(), "uint8"))
        nodes.append(GraphNode("null", block, (TensorType((layout.constant_bytes,), "uint8"),)))
    entries = [Entry(i) for i in range(len(nodes))]
    types = tuple(_type(t) for t in layout.outputs)
    attrs = {"num_inputs": str(len(entries)), "num_outputs": str(len(types)), "flatten_data": "0", "func_name": name}
    nodes.append(GraphNode("tvm_op", name, types, entries, attrs))
    heads = [Entry(len(nodes) - 1, i) for i in range(len(types))]
    storage = list(range(len(entries) + len(types)))
    plan = StoragePlan(storage, None, {1: layout.workspace_bytes})
    about = {  # what runtime/library_info.py tells
        "kernel_calls": program.kernel_calls,
        "workspace_bytes": layout.workspace_bytes,
        "constants": [[c.name, c.value.shape, str(c.value.dtype)] for c in layout.constants],
    }
    return Graph(nodes, heads, params, plan, metadata | {"program": about})


def _buffer(tensor: AotTensor) -> Buffer:
    return decl_buffer(tensor.shape, tensor.dtype, tensor.name, data_alignment=dt.nbytes(tensor.dtype))


def _type(tensor: AotTensor) -> TensorType:
    return TensorType(tensor.shape, tensor.dtype)
