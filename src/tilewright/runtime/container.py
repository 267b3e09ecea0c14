"""Containers of the runtime under TVM's names."""

from __future__ import annotations


class String(str):
    """TVM's string object: here a Python string."""

    __slots__ = ()
