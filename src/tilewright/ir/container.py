"""``tvm.ir.container``: sequences of nodes are tuples, and mappings dictionaries."""

Array = tuple
Map = dict

__all__ = ["Array", "Map"]
