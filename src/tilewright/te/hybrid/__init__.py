"""Hybrid script: operations written as loops in a subset of Python, which also runs on numpy arrays.

script, HybridModule   what users call (module.py)        reader.py   from Python's text to an operation
runtime.py             the functions a script may call    printer.py  from a schedule back to such a text

>>> @te.hybrid.script
... def outer(a, b):
...     c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
...     for i in range(a.shape[0]):
...         for j in parallel(b.shape[0]):
...             c[i, j] = a[i] * b[j]
...     return c
>>> c = outer(te.placeholder((8,)), te.placeholder((9,)))   # a tensor, whose loops a schedule may change
>>> outer(np.ones(8), np.ones(9))                           # numpy's
"""

from tilewright.te.hybrid import runtime
from tilewright.te.hybrid.module import HybridModule, build, script, source_to_op

__all__ = ["HybridModule", "build", "runtime", "script", "source_to_op"]
