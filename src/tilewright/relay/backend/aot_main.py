"""The main function of an ahead-of-time program: the kernels' calls in order, in memory that was planned.

Of a graph (``graph_codegen.py``) it makes a function of TIR, which any code generator takes::

    primfn(x: handle, output: handle, constants: handle, workspace: handle) -> int32
      if tvmgen_default_fused_nn_dense(x, address of constants[0], address of workspace[0]) != 0 { ret(-1) }
      if tvmgen_default_fused_nn_softmax(address of workspace[0], output) != 0 { ret(-1) }
      ret(0)

Kernels write results where the caller wants them, unless a result is a part of another tensor, an input or a constant,
which is copied. All else, also what kernels need for themselves, is in one workspace, whose size is known, or in
several parts of it (``-workspace-pools``). Nothing outside of the arguments changes, so threads may run it at once with
a workspace each. Functions that other compilers have made are called as packed functions of tensors::

      tir.tvm_call_packed("tvmgen_default_dnnl_main_0", array of x, array of workspace[0])
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.ir.type import PrimType, TensorType
from tilewright.relay.backend.graph_codegen import Graph, GraphNode
from tilewright.relay.data_flow import Entry
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.transform.memory.graph_plan import aligned
from tilewright.runtime.executor.aot import AotConstant, AotLayout, AotPool, AotTensor
from tilewright.target.target import Target
from tilewright.tir import op as tir_op
from tilewright.tir.expr import Call, Load, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import IS_ENTRY
from tilewright.tir.stmt import Evaluate, For, ForKind, IfThenElse, Stmt, Store, seq


@dataclass(frozen=True)
class AotProgram:
    """An ahead-of-time program: its main function, what that takes, and how many kernels it calls."""

    main: PrimFunc
    layout: AotLayout
    kernel_calls: int


def aot_program(
    graph: Graph, name: str, target: Target, kernel_bytes: Mapping[str, int], pools: Sequence[str], alignment: int,
    external: Collection[str] = (),
) -> AotProgram:  # fmt: skip
    """Return the program of a graph.

    Parameters
    ----------
    graph : nodes with planned storage, results apart
    name : name of the main function
    target : its target
    kernel_bytes : by kernel the bytes of the workspace that it takes as its last argument, where it takes one
    pools : names of the parts of the workspace, one for each arena of the graph's plan
    alignment : bytes to which the workspace, the block of constants and their parts are aligned, as in the graph's plan
    external : names of packed functions that other compilers have made, which are found by name when they are called

    Raises
    ------
    UnsupportedError : the graph copies between devices
    """
    return _Writer(graph, kernel_bytes, pools, alignment, external).program(name, target)


class _Writer:
    """Writes the calls of a graph."""

    def __init__(
        self, graph: Graph, kernel_bytes: Mapping[str, int], pools: Sequence[str], alignment: int,
        external: Collection[str],
    ) -> None:  # fmt: skip
        self.graph, self.kernel_bytes, self.alignment, self.external = graph, kernel_bytes, alignment, external
        self.rows = graph.rows()
        self.constants_block = Var("constants", "handle")
        self.pools = [Var(name, "handle") for name in pools]
        self.pool_ends = [0] * len(pools)
        self.inputs: list[tuple[Var, AotTensor]] = []
        self.outputs: list[tuple[Var, AotTensor]] = []
        self.constants: list[AotConstant] = []
        self.bases: dict[int, tuple[Var, int]] = {}  # of each storage, the block it is in, and where
        self.constant_end = 0

    def program(self, name: str, target: Target) -> AotProgram:
        self._take_inputs()
        direct = self._take_outputs()
        self._place_rest()
        calls = [self._call(i, node) for i, node in enumerate(self.graph.nodes) if node.op != "null" and not node.alias]
        count = len(calls)
        calls += [self._copy(number, head) for number, head in enumerate(self.graph.heads) if number not in direct]
        params = [*(v for v, _ in (*self.inputs, *self.outputs)), self.constants_block, *self.pools]
        attrs = {GLOBAL_SYMBOL.key: name, TARGET.key: target, IS_ENTRY.key: 1}
        main = PrimFunc(params, seq(*calls, Evaluate(tir_op.ret(IntImm("int32", 0)))), PrimType("int32"), {}, attrs)
        inputs, outputs = (tuple(t for _, t in group) for group in (self.inputs, self.outputs))
        pools = tuple(AotPool(v.name, n) for v, n in zip(self.pools, self.pool_ends, strict=True))
        layout = AotLayout(name, inputs, outputs, tuple(self.constants), self.constant_end, pools, self.alignment)
        return AotProgram(main, layout, count)

    def _storage(self, entry: Entry) -> int:
        return self.graph.storage.storage[self.rows[entry.node] + entry.index]

    def _take_inputs(self) -> None:
        for index, node in enumerate(self.graph.nodes):
            if node.op != "null":
                continue
            storage, (type_,) = self._storage(Entry(index)), node.types
            if node.name in self.graph.params:
                value = self.graph.params[node.name]
                self.bases[storage] = (self.constants_block, self.constant_end)
                self.constants.append(AotConstant(node.name, self.constant_end, value))
                self.constant_end += aligned(value.nbytes, self.alignment)
            else:
                var = Var(f"input{len(self.inputs)}", "handle")
                self.bases[storage] = (var, 0)
                self.inputs.append((var, _tensor(node.name, type_)))

    def _take_outputs(self) -> set[int]:
        """Take the results' names and types; return the numbers of those that kernels write in place."""
        direct = set()
        names: Sequence[str] = self.graph.metadata.get("outputs", [])
        arenas = self.graph.storage.arenas
        for number, head in enumerate(self.graph.heads):
            type_ = self.graph.nodes[head.node].types[head.index]
            var = Var(f"output{number}", "handle")
            name = names[number] if names else f"output{number}" if len(self.graph.heads) > 1 else "output"
            self.outputs.append((var, _tensor(name, type_)))
            storage = self._storage(head)
            if storage not in self.bases and storage not in arenas:
                self.bases[storage] = (var, 0)
                direct.add(number)
        return direct

    def _place_rest(self) -> None:
        """Place the arenas in the workspace, and what has a storage of its own for another reason in its last part."""
        for storage, arena in self.graph.storage.arenas.items():
            self.bases[storage] = (self.pools[arena.number], 0)
            self.pool_ends[arena.number] = arena.nbytes
        for index, node in enumerate(self.graph.nodes):
            for i, type_ in enumerate(node.types):
                if (storage := self._storage(Entry(index, i))) not in self.bases:
                    self.bases[storage] = self._behind(tensor_bytes(type_))

    def _behind(self, nbytes: int) -> tuple[Var, int]:
        """Return a new place at the end of the workspace."""
        start = self.pool_ends[-1]
        self.pool_ends[-1] += aligned(nbytes, self.alignment)
        return self.pools[-1], start

    def _place(self, entry: Entry) -> tuple[Var, int]:
        block, start = self.bases[self._storage(entry)]
        offsets = self.graph.storage.offsets
        return block, start + (offsets[self.rows[entry.node] + entry.index] if offsets is not None else 0)

    def _own_memory(self, index: int, nbytes: int) -> tuple[Var, int]:
        """Return the place of what the kernel of a node takes for itself."""
        if index not in self.graph.storage.own:  # a plan without arenas
            return self._behind(nbytes)
        storage, offset = self.graph.storage.own[index]
        block, start = self.bases[storage]
        return block, start + offset

    def _call(self, index: int, node: GraphNode) -> Stmt:
        name = node.attrs["func_name"]
        if name == "__copy":
            raise UnsupportedError("an ahead-of-time program runs on one device, and this one copies between devices")
        entries = [*node.inputs, *(Entry(index, i) for i in range(len(node.types)))]
        args = [_address(*self._place(entry)) for entry in entries]
        if name in self.external:
            types = [self.graph.nodes[entry.node].types[entry.index] for entry in entries]
            arrays = [_array(address, type_) for address, type_ in zip(args, types, strict=True)]
            return Evaluate(tir_op.call_packed(name, *arrays))
        if own := self.kernel_bytes.get(name, 0):
            args.append(_address(*self._own_memory(index, own)))
        status = Call("int32", "tir.call_extern", (StringImm(name), *args))
        failed = ops.not_equal(status, IntImm("int32", 0))
        return IfThenElse(failed, Evaluate(tir_op.ret(IntImm("int32", -1))))

    def _copy(self, number: int, head: Entry) -> Stmt:
        var, tensor = self.outputs[number]
        block, start = self._place(head)
        at = Var("i", "int32" if max(start, tensor.nbytes) < 1 << 30 else "int64")
        copied = Store(var, Load("int8", block, ops.add(at, ops.const(start, at.dtype))), at)
        return For(at, ops.const(0, at.dtype), ops.const(tensor.nbytes, at.dtype), ForKind.SERIAL, copied)


def _tensor(name: str, type_: TensorType) -> AotTensor:
    return AotTensor(name, type_.concrete_shape, type_.dtype, tensor_bytes(type_))


def _array(address: PrimExpr, type_: TensorType) -> Call:
    """Return the description of a compact tensor at an address, for packed functions."""
    shape = [IntImm("int64", extent) for extent in type_.concrete_shape]
    zero = IntImm("int32", 0)
    parts = (
        address, Call("handle", "tir.tvm_stack_make_shape", shape), zero, IntImm("int32", len(shape)),
        ops.const(0, type_.dtype), zero,
    )  # fmt: skip
    return Call("handle", "tir.tvm_stack_make_array", parts)


def _address(block: Var, offset: int) -> PrimExpr:
    if offset == 0:
        return block
    return tir_op.address_of(Load("int8", block, IntImm("int32" if offset < 1 << 31 else "int64", offset)))
