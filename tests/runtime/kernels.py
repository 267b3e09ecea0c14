"""Hand-written C kernels in the roles of compiled code, and graphs that call them."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

from tilewright.runtime import _ffi

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "native" / "tests" / "kernels.c"


def compile_kernels(target: Path, *options: str) -> Path:
    """Compile kernels.c to an object or, by options, to a library."""
    include = f"-I{_ffi.include_dir()}"
    subprocess.run(["gcc", "-O1", "-fPIC", include, *options, str(KERNELS), "-o", str(target)], check=True)
    return target


class HandWrittenCode:
    """A CompiledCode over kernels.c, as a code generator would provide it."""

    def __init__(self, obj: Path, library: Path) -> None:
        self.obj, self.library = obj, ctypes.CDLL(str(library))

    def lookup(self, name: str) -> int | None:
        try:
            return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        except AttributeError:
            return None

    def function_names(self) -> list[str]:
        return ["add_one", "add_flat", "call_back"]

    def objects(self) -> list[bytes]:
        return [self.obj.read_bytes()]

    def get_source(self, fmt: str) -> str:
        return f"source as {fmt or 'default'}"


def chain_json(length: int, shape: tuple[int, ...] = (3, 5)) -> str:
    """A graph JSON: inputs x and w; y0 = x + w (flattened), then `length` times y + 1; outputs y and w."""

    def op(name: str, function: str, inputs: list[int], flatten: str = "0") -> dict[str, object]:
        attrs = {
            "num_outputs": "1",
            "num_inputs": str(len(inputs)),
            "flatten_data": flatten,
            "func_name": function,
        }
        return {"op": "tvm_op", "name": name, "attrs": attrs, "inputs": [[i, 0, 0] for i in inputs]}

    nodes: list[dict[str, object]] = [{"op": "null", "name": n, "inputs": []} for n in ("x", "w")]
    nodes.append(op("sum", "add_flat", [0, 1], "1"))
    nodes += [op(f"step{i}", "add_one", [2 + i]) for i in range(length)]
    count = len(nodes)
    storage = [0, 1, *(2 + i % 2 for i in range(count - 2))]
    attrs = {
        "dltype": ["list_str", ["float32"] * count],
        "shape": ["list_shape", [list(shape)] * count],
        "storage_id": ["list_int", storage],
    }
    return json.dumps(
        {
            "nodes": nodes,
            "arg_nodes": [0, 1],
            "heads": [[count - 1, 0, 0], [1, 0, 0]],
            "attrs": attrs,
            "node_row_ptr": list(range(count + 1)),
        }
    )
