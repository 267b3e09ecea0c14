"""TIR to C source, in the manner of TVM's target "c".

``function.py``: what functions of the host add to ``codegen/source``. ``prelude.h``: what every source begins with: the
runtime's pointers, the argument check, helpers. ``code.py``: the module that compiles the source when somebody runs it.
"""
