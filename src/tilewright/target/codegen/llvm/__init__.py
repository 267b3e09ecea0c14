"""TIR to LLVM IR text.

``types.py``: dtypes and literals as LLVM writes them. ``expr.py``: expressions; ``memory.py``: loads and stores;
``calls.py``: intrinsics; ``statements.py``: statements, for any device; ``function.py``: functions of the host, which
call the runtime. ``math.py``: exp, tanh, ... as polynomials. ``support.py``: what all kernels of a module share.
``argument_check.py``: the check of arguments. ``builder.py``: the text of one function as it grows; ``lines.py``: the
line of the TIR text of each instruction. ``vectors.py``: stores wider than registers; ``tiles.py``: where AMX's tiles
are configured. ``generator.py``: the code generator of the kind ``llvm``; ``module.py``: puts a module together;
``code.py``: the module that runs it; ``ir_file.py``: modules from files of LLVM IR.

IR is written as text, which costs a tenth of building it object by object from Python and parsing that.
"""

from tilewright.target.codegen.llvm.module import emit_function

__all__ = ["emit_function"]
