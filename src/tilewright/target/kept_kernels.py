"""Kernels on disk by what they are lowered from: building the same model again lowers nothing.

The kernel cache (``cache.py``) has two entries for a kernel. One, by the IR's text, is the object code. The other, by
the key of a function's body (``tir.function.KeyedBody``), is what there is to know of a lowered function without its
body: attributes, parameters, workspace, and what its code generator has written, which for LLVM is the IR. Whoever
lowers makes the key of everything that the body depends on (``relay.backend.kernel_key``).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilewright.ir.function_attributes import TARGET
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.structural import structural_equal
from tilewright.ir.type import PrimType
from tilewright.target.cache import cache_key, current_cache, is_plain
from tilewright.target.target import Target
from tilewright.tir.analysis import calculate_workspace_bytes
from tilewright.tir.expr import Var
from tilewright.tir.function import KeyedBody, PrimFunc
from tilewright.tir.stmt import Stmt
from tilewright.tir.transform.lower_tvm_builtin import MAX_STACK_BYTES
from tilewright.tir.visitor import substitute

_FORMAT = "1"  # raise it when entries change
_Buffers = list[list[Any]]


@dataclass(frozen=True)
class KeptKernel:
    """The entry of a kernel.

    Attributes
    ----------
    attrs : its attributes as the code generator met them, as pairs; the target's text in place of the target
    buffers : name of the parameter, name, shape and dtype of each buffer
    workspace : bytes, as ``workspace_bytes`` counts them
    code : what the code generator wrote, in its own form
    """

    attrs: list[list[Any]]
    buffers: _Buffers
    workspace: int
    code: Any


def kept_kernel(key: str, target: Target, lower: Callable[[], PrimFunc]) -> PrimFunc | None:
    """Return the function that the cache has under ``key``, or None; ``lower`` makes it if its body is asked for."""
    cache = current_cache()
    data = cache.get(cache_key(_FORMAT, key)) if cache is not None else None
    if data is None:
        return None
    kept = KeptKernel(*json.loads(zlib.decompress(data)))
    params = [Var(param, "handle") for param, *_ in kept.buffers]
    buffers = [decl_buffer(shape, dtype, name) for _, name, shape, dtype in kept.buffers]
    attrs = {name: target if name == TARGET.key else value for name, value in kept.attrs}

    def body() -> Stmt:
        made = lower()
        pointers = [made.buffer_map[param].data for param in made.params]
        return cast(Stmt, substitute(made.body, dict(zip(pointers, (b.data for b in buffers), strict=True))))

    return PrimFunc(params, KeyedBody(key, kept, body), None, dict(zip(params, buffers, strict=True)), attrs)


def kept_code(func: PrimFunc) -> Any | None:
    """Return what the code generator wrote for a function when it was kept; None if it has not been, or changed."""
    keyed = func.keyed_body
    kept = keyed.made if keyed is not None else None
    return kept.code if isinstance(kept, KeptKernel) and kept.attrs == _plain_attrs(func) else None


def keep(func: PrimFunc, code: Sequence[Any]) -> None:
    """Keep a function whose body has a key, with what the code generator wrote: values that JSON has."""
    keyed, cache = func.keyed_body, current_cache()
    if keyed is None or keyed.made is not None or cache is None:
        return
    attrs, buffers = _plain_attrs(func), _plain_buffers(func)
    if attrs is None or buffers is None:
        return
    keyed.made = kept = KeptKernel(attrs, buffers, workspace_bytes(func), list(code))
    text = json.dumps([kept.attrs, kept.buffers, kept.workspace, kept.code], separators=(",", ":"))
    cache.put(cache_key(_FORMAT, keyed.key), zlib.compress(text.encode("utf-8", "surrogatepass"), 1))


def workspace_bytes(func: PrimFunc) -> int:
    """Return the most that a kernel allocates at a time beside the stack, in bytes."""
    kept = func.keyed_body.made if func.keyed_body is not None else None
    if isinstance(kept, KeptKernel):
        return kept.workspace
    target: Target = TARGET.of(func)
    alignment = int(target.get_attr("workspace-byte-alignment", 1))
    return calculate_workspace_bytes(func, alignment, MAX_STACK_BYTES if "cpu" in target.keys else 0)


def _plain_attrs(func: PrimFunc) -> list[list[Any]] | None:
    """Return the attributes as values that JSON has, or None if it has no form of one."""
    found = [[name, str(value) if name == TARGET.key else _listed(value)] for name, value in func.attrs.items()]
    return found if all(is_plain(value) for _, value in found) else None


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, (tuple, list)) else value


def _plain_buffers(func: PrimFunc) -> _Buffers | None:
    """Return the parameters, or None if one is not simply a compact tensor of known shape."""
    found = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None or not all(isinstance(d, IntImm) for d in buffer.shape):
            return None
        shape = [d.value for d in buffer.shape if isinstance(d, IntImm)]
        if not _same(buffer, decl_buffer(shape, buffer.dtype, buffer.name)):
            return None
        found.append([param.name, buffer.name, shape, buffer.dtype])
    return found if structural_equal(func.ret_type, PrimType("void")) else None


def _same(buffer: Buffer, made: Buffer) -> bool:
    return structural_equal(buffer, made, map_free_vars=True) and buffer.data.name == made.data.name
