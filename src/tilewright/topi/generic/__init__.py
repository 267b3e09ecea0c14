"""Schedules for any target, by TVM's names: the fallback of targets that register none.

All are one (``default.py``): loops in declared order, no vectors, no threads, injective computes inlined. It is correct
on every target and fast on none.
"""

from tilewright.topi.vendors import names_of

__getattr__, __dir__ = names_of(__name__)
