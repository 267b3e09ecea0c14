"""TIR to C source, in the manner of TVM's target "c".

``function.py``: what functions of the host add to ``codegen/source``. ``prelude.h``: what every source begins with: the
runtime's pointers, the argument check, helpers. ``code.py``: the module that compiles the source when somebody runs it.
``generator.py``: the code generator of the kind ``c``. ``argument_check.py``, ``parts.py``: heads of sources.
``linked_params.py``: parameters in the code. ``freestanding.py``: C99 that needs no runtime.
"""
