"""oneDNN: partitioning of a network for it, and its regions as JSON for the runtime or as C source.

partition.py     ``partition_for_dnnl`` and its report
serializer.py    a region as JSON
c_source.py      a region as C source
"""

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.transform import PassContext
from tilewright.relay.backend.contrib.dnnl.c_source import compile_to_c
from tilewright.relay.backend.contrib.dnnl.partition import explain, partition
from tilewright.relay.backend.contrib.dnnl.serializer import compile_to_json
from tilewright.relay.expr import Function
from tilewright.runtime.module import Module

__all__ = ["compile_region", "explain", "partition"]

_FORMS = {"json": compile_to_json, "c": compile_to_c}


def compile_region(func: Function) -> Module:
    """Return the module of an external function, in the form that the option ``relay.ext.dnnl.codegen`` selects."""
    form = PassContext.current().option("relay.ext.dnnl.codegen")
    if form not in _FORMS:
        raise UnsupportedError(f"relay.ext.dnnl.codegen is {form!r}; there are {', '.join(map(repr, _FORMS))}")
    return _FORMS[form](func)
