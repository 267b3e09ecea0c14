"""TIR to C source, in the manner of TVM's target "c".

``scalarize.py``: vector statements as loops over lanes. ``names.py``: types, literals, identifiers. ``expr.py`` and
``function.py``: expressions and statements. ``prelude.h``: what every source begins with: the runtime's pointers, the
argument check, helpers. ``code.py``: the module that compiles the source when somebody runs it.
"""
