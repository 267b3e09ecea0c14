"""The code generator of the kind ``c``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import UnsupportedError
from tilewright.runtime.module import Module, from_compiled
from tilewright.runtime.registry import register_func
from tilewright.target.code_generator import register_code_generator, to_host_form
from tilewright.target.codegen.c.code import CCode, emit_source, registration_source
from tilewright.target.codegen.c.freestanding import emit_freestanding
from tilewright.target.codegen.c.linked_params import LOOKUP, linked_params
from tilewright.target.codegen.options import refuse_unsupported
from tilewright.target.features import features
from tilewright.target.interfaces import is_freestanding
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc

_HEADERS = "packed_func|registry|module|ndarray|data_type|object|logging"
_CPLUSPLUS_HEADER = re.compile(rf"^\s*#\s*include\s*[<\"]tvm/runtime/({_HEADERS})\.h[>\"]", re.MULTILINE)


@register_code_generator("c")
class CGenerator:
    """C source, which is compiled when somebody runs it, or exports the module."""

    def __init__(self, target: Target) -> None:
        refuse_unsupported(target, features(target))
        self._target = target
        self._functions: list[PrimFunc] = []

    def add(self, func: PrimFunc) -> None:
        """Bring the function to C's level."""
        self._functions += to_host_form(func)

    def finish(self) -> Module:
        """A module of type ``c``."""
        emit = emit_freestanding if is_freestanding(self._target) else emit_source
        source, names = emit(self._functions, self._target)
        return source_module(CCode(source, names, registration=registration_source(names, self._target)))


def source_module(code: CCode) -> Module:
    """A module of type ``c``."""
    module = from_compiled(code, "c")
    code.module_handle = module.handle
    return module


def link_params(library: Module, target: Target, params: Iterable[tuple[int, str, np.ndarray[Any, Any], str]]) -> None:
    """Make parameters part of a library's code: of its C source, or of one that it imports.

    ``params`` are the number of the storage, the name, the elements and the data type of each.
    """
    text, code = linked_params(params), library.compiled_code
    if isinstance(code, CCode):
        code.append(text, LOOKUP, registration_source([*code.function_names(), LOOKUP], target))
    else:
        source, _ = emit_source([], Target("c"))
        library.import_module(source_module(CCode(source + text, [LOOKUP])))


@register_func("runtime.CSourceModuleCreate", override=True)
def create_source_module(
    source: str, fmt: str = "c", func_names: Sequence[str] | None = (), const_vars: Sequence[str] | None = ()
) -> Module:
    """Create a module of C or C++ source; an exported library compiles the source into it.

    Parameters
    ----------
    source : the text
    fmt : ``"c"``, or ``"cc"`` or ``"cpp"`` for C++, whose packed functions are ``extern "C"``; C that includes a C++
        header of the runtime, such as ``tvm/runtime/packed_func.h``, is C++, too
    func_names : its packed functions, of the form ``int f(TVMValue* args, int* type_codes, int num_args, TVMValue*
        out_value, int* out_type_code)``
    const_vars : names of the constants passed once, as tensors that stay in place, to ``__init_F`` of the same form,
        F the first function

    Raises
    ------
    UnsupportedError : the source is in another language
    """
    suffixes = {"c": "c", "cc": "cc", "cpp": "cc"}
    if fmt not in suffixes:
        raise UnsupportedError(f"a source module of format {fmt!r} cannot be compiled; there are 'c', 'cc' and 'cpp'")
    suffix = "cc" if _CPLUSPLUS_HEADER.search(source) else suffixes[fmt]
    return source_module(CCode(source, func_names or (), const_vars or (), suffix))
