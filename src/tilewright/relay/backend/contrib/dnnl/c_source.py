"""A region for oneDNN as C source, which calls a kernel of the runtime for each operator.

Selected by ``PassContext(config={"relay.ext.dnnl.codegen": "c"})``; compiled into the library as other C sources are. A
kernel keeps its primitive, but converts weights to oneDNN's layout in each call and its result to a plain one. So JSON
is the faster form; this one can be read, changed and stepped through. The kernel is ``runtime.dnnl.kernel``, which
takes the computation as text::

    static const char k4[] = "{...}";                       // nn.conv2d, with shapes and attributes
    DLTensor* a4[] = {&t0, &t1, &t4};
    status = tvmgen_default_dnnl_main_0_kernel(k4, a4, 3);
"""

from __future__ import annotations

import json
import math
from typing import Any

from tilewright.ir.errors import UnsupportedError
from tilewright.relay.backend.c_region import c_region, c_tensor
from tilewright.relay.backend.contrib.dnnl.serializer import DNNLSerializer
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import GLOBAL_SYMBOL
from tilewright.relay.transform.memory.graph_plan import aligned
from tilewright.runtime.module import Module
from tilewright.target.codegen.c.code import CCode, emit_source
from tilewright.target.codegen.c.generator import source_module
from tilewright.target.codegen.source.names import string_literal
from tilewright.target.target import Target

_CALL = """\
static int32_t {symbol}_kernel(const char* text, DLTensor** tensors, int32_t count) {{
  TVMFunctionHandle kernel;
  TVMValue args[{most}], result;
  int32_t codes[{most}], code;
  if (TVMBackendGetFuncFromEnv(__tvm_module_ctx, "runtime.dnnl.kernel", &kernel) != 0) return -1;
  args[0].v_str = text;
  codes[0] = kTVMStr;
  for (int32_t i = 0; i < count; ++i) {{
    args[i + 1].v_handle = tensors[i];
    codes[i + 1] = kTVMDLTensorHandle;
  }}
  return TVMFuncCall(kernel, args, codes, count + 1, &result, &code);
}}
"""


def compile_to_c(func: Function) -> Module:
    """Return the module of C source of an external function."""
    symbol = GLOBAL_SYMBOL.of(func)
    serializer = DNNLSerializer(symbol, func)
    serializer.to_json()
    source, _ = emit_source([], Target("c"))
    return source_module(CCode(source + _driver(symbol, serializer), [symbol], serializer.constants))


def _driver(symbol: str, graph: DNNLSerializer) -> str:
    lines: list[str] = []
    end = arguments = constants = 0
    for index, node in enumerate(graph.nodes):
        shapes = node["attrs"]["shape"][0]
        if node["op"] == "kernel":
            lines += c_tensor(index, shapes[0], "float32", f"memory + {end}")
            end += aligned(4 * math.prod(shapes[0]))
            lines += _call(symbol, index, node, graph)
            continue
        source = (
            f"{symbol}_constants[{constants}]" if node["op"] == "const" else f"(DLTensor*)given[{arguments}].v_handle"
        )
        lines.append(f"  DLTensor t{index} = *({source});")
        constants += node["op"] == "const"
        arguments += node["op"] == "input"
    lines += [_result(arguments + i, head, graph) for i, head in enumerate(graph.heads)]
    most = 2 + max((len(node.get("inputs", ())) for node in graph.nodes), default=0)
    return c_region(symbol, constants, end, _CALL.format(symbol=symbol, most=most), lines)


def _of_first(entry: list[int]) -> int:
    """Return the node of an entry that is its first output."""
    if entry[1] != 0:
        raise UnsupportedError("C source for oneDNN has the first results of operators only; take JSON instead")
    return entry[0]


def _call(symbol: str, index: int, node: dict[str, Any], graph: DNNLSerializer) -> list[str]:
    """Return the kernel's text, a graph of this operator alone, and its call."""
    sources = [_of_first(entry) for entry in node["inputs"]]
    inputs = [{"op": "input", "name": f"i{i}", "attrs": _first_type(graph.nodes[s])} for i, s in enumerate(sources)]
    own = {**node, "inputs": [[i, 0, 0] for i in range(len(inputs))]}
    text = json.dumps({"nodes": [*inputs, own], "heads": [[len(inputs), 0, 0]]})
    tensors = ", ".join(f"&t{i}" for i in [*sources, index])
    return [
        f"  static const char k{index}[] = {string_literal(text)};",
        f"  DLTensor* a{index}[] = {{{tensors}}};",
        f"  status = {symbol}_kernel(k{index}, a{index}, {len(sources) + 1});",
        "  if (status != 0) goto done;",
    ]


def _first_type(node: dict[str, Any]) -> dict[str, Any]:
    return {key: [node["attrs"][key][0][:1]] for key in ("shape", "dtype")}


def _result(argument: int, head: list[int], graph: DNNLSerializer) -> str:
    index = _of_first(head)
    size = 4 * math.prod(graph.nodes[index]["attrs"]["shape"][0][0])
    out = f"((DLTensor*)given[{argument}].v_handle)"
    data = f"(char*)t{index}.data + t{index}.byte_offset"
    return f"  memcpy((char*){out}->data + {out}->byte_offset, {data}, {size});"
