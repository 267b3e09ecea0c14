"""The external compiler ``ccompiler``: any region of a network as C source.

It makes no network faster: the region's operators are fused and lowered for the target ``c``, and a C function calls
the kernels one after another. It serves to try partitioning, linking and calling on whole networks without a vendor's
library. Constants are passed as arrays, so their size is no limit::

    static DLTensor* tvmgen_default_ccompiler_main_0_constants[1];
    int32_t __init_tvmgen_default_ccompiler_main_0(...)    stores them
    int32_t tvmgen_default_ccompiler_main_0(...) {
      DLTensor t0 = *(DLTensor*)args[0];                   the argument
      DLTensor t1 = *constants[0];
      DLTensor t2 = {memory + 0, ...};                     an intermediate tensor in the workspace
      if (run(tvmgen_..._fused_nn_dense, 3, &t0, &t1, &t2) != 0) ...
      memcpy(result, t2.data, 32);
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay import transform
from tilewright.relay.backend.c_region import c_region, c_tensor
from tilewright.relay.backend.graph_codegen import Graph, GraphCodegen, GraphNode
from tilewright.relay.backend.json_serializer import constant_names
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.backend.lowered import kernels
from tilewright.relay.data_flow import Entry
from tilewright.relay.expr import Function, Var
from tilewright.relay.function_attributes import GLOBAL_SYMBOL
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.transform.memory.graph_plan import aligned
from tilewright.relay.transform.memory.plan_views import PlanViews
from tilewright.relay.visitor import ExprMutator
from tilewright.runtime.module import Module
from tilewright.target.code_generator import to_host_form
from tilewright.target.codegen.c.code import CCode, emit_source
from tilewright.target.codegen.c.generator import source_module
from tilewright.target.target import Target

_RUN = """\
typedef int32_t (*{symbol}_kernel)(void*, int32_t*, int32_t, void*, int32_t*, void*);

static int32_t {symbol}_run({symbol}_kernel kernel, DLTensor** tensors, int32_t count) {{
  TVMValue args[{most}], result;
  int32_t codes[{most}], code;
  for (int32_t i = 0; i < count; ++i) {{
    args[i].v_handle = tensors[i];
    codes[i] = kTVMDLTensorHandle;
  }}
  return kernel(args, codes, count, &result, &code, NULL);
}}
"""


def compile_to_c(func: Function) -> Module:
    """Return the module of C source of an external function."""
    symbol = GLOBAL_SYMBOL.of(func)
    names = constant_names(func, symbol)
    context = PassContext.current()
    target = Target("c")
    with PassContext(context.opt_level, config={"relay.graph.storage_offset": False}), target:
        fused = Sequential(_passes(), name="ccompiler")(_with_constants_as_inputs(func))
        lowered = LowerTE(target, symbol)(fused)
        graph = GraphCodegen(lowered).codegen()
    parts = [part for kernel in kernels(lowered).values() for part in to_host_form(kernel)]
    source, _ = emit_source(parts, target)
    text = source + _Driver(symbol, graph, len(names)).source()
    return source_module(CCode(text, [symbol], list(names.values())))


def _passes() -> list[Pass]:
    """Return the passes that bring a region's operators to kernels; optimizing is left to the caller that
    partitions.
    """
    return [
        transform.InferType(),
        transform.ComputeInFloat32(),
        transform.Legalize(),
        transform.SimplifyInference(),
        transform.InlineFunctions(),
        transform.ToGraphNormalForm(),
        transform.LiftConv1D(),
        transform.LiftConv3D(),
        transform.CanonicalizeOps(),
        transform.FuseOps(),
        transform.LabelOps(),
        PlanViews(),
    ]


class _Lifter(ExprMutator):
    """Replace constants by variables."""

    def __init__(self, names: Sequence[object], variables: Sequence[Var]) -> None:
        super().__init__()
        self.memo_map.update(zip(names, variables, strict=True))  # type: ignore[arg-type]


def _with_constants_as_inputs(func: Function) -> IRModule:
    names = constant_names(func, "constant")
    variables = [Var(name, constant.tensor_type) for constant, name in names.items()]
    body = _Lifter(list(names), variables).visit(func.body)
    return IRModule.from_expr(Function([*func.params, *variables], body, func.ret_type))


class _Driver:
    """Write the function that calls the kernels of a graph, whose last ``num_constants`` inputs are constants."""

    def __init__(self, symbol: str, graph: Graph, num_constants: int) -> None:
        self.symbol = symbol
        self.graph = graph
        self.num_constants = num_constants
        self.inputs = [index for index, node in enumerate(graph.nodes) if node.op == "null"]
        self.num_args = len(self.inputs) - num_constants
        self.first_row = graph.rows()

    def source(self) -> str:
        """Return the C text."""
        nodes = self.graph.nodes
        start, nbytes = self._storages()
        tensors = [line for number, index in enumerate(self.inputs) for line in self._input(number, index)]
        tensors += [line for index, node in enumerate(nodes) for line in self._made(index, node, start)]
        calls = [line for index, node in enumerate(nodes) for line in self._call(index, node)]
        calls += [self._result(number, head) for number, head in enumerate(self.graph.heads)]
        most = max([len(node.inputs) + len(node.types) for node in nodes], default=1)
        run = _RUN.format(symbol=self.symbol, most=most)
        return c_region(self.symbol, self.num_constants, nbytes, run, tensors + calls)

    def _row(self, entry: Entry) -> int:
        return self.first_row[entry.node] + entry.index

    def _storages(self) -> tuple[dict[int, str], int]:
        """Return where each storage begins, as C text, and the size of the function's workspace in bytes."""
        storage_of = self.graph.storage.storage
        starts = {storage_of[self.first_row[i]]: f"(char*)t{self.first_row[i]}.data" for i in self.inputs}
        sizes: dict[int, int] = {}
        types = (type_ for node in self.graph.nodes for type_ in node.types)
        for type_, storage in zip(types, storage_of, strict=True):
            if storage not in starts:
                sizes[storage] = max(sizes.get(storage, 0), tensor_bytes(type_), 1)
        end = 0
        for storage, size in sizes.items():
            starts[storage] = f"memory + {end}"
            end += aligned(size)
        return starts, end

    def _input(self, number: int, index: int) -> list[str]:
        row = self.first_row[index]
        constant = number - self.num_args
        source = f"{self.symbol}_constants[{constant}]" if constant >= 0 else f"(DLTensor*)given[{number}].v_handle"
        return [
            f"  DLTensor t{row} = *({source});",
            f"  t{row}.data = (char*)t{row}.data + t{row}.byte_offset, t{row}.byte_offset = 0;",
        ]

    def _made(self, index: int, node: GraphNode, start: dict[int, str]) -> list[str]:
        rows = range(self.first_row[index], self.first_row[index + 1]) if node.op != "null" else ()
        places = [start[self.graph.storage.storage[row]] for row in rows]
        made = zip(rows, node.types, places, strict=True) if rows else ()
        return [line for row, type_, place in made for line in c_tensor(row, type_.concrete_shape, type_.dtype, place)]

    def _call(self, index: int, node: GraphNode) -> list[str]:
        if node.op == "null" or node.alias:
            return []
        entries = [*node.inputs, *(Entry(index, i) for i in range(len(node.types)))]
        pointers = ", ".join(f"&t{self._row(entry)}" for entry in entries)
        return [
            "  {",
            f"    DLTensor* tensors[] = {{{pointers}}};",
            f"    status = {self.symbol}_run({node.attrs['func_name']}, tensors, {len(entries)});",
            "    if (status != 0) goto done;",
            "  }",
        ]

    def _result(self, number: int, head: Entry) -> str:
        size = tensor_bytes(self.graph.nodes[head.node].types[head.index])
        out = f"((DLTensor*)given[{self.num_args + number}].v_handle)"
        return f"  memcpy((char*){out}->data + {out}->byte_offset, t{self._row(head)}.data, {size});"
