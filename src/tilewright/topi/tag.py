"""Tags of computes; schedules decide by them what to inline."""

from tilewright.te.tag import BROADCAST, ELEMWISE

INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"


def is_broadcast(tag: str) -> bool:
    """Return whether the tag means an element-wise or broadcasting compute."""
    return tag.startswith((ELEMWISE, BROADCAST))


def is_injective(tag: str) -> bool:
    """Return whether the tag means a compute whose every output element reads at most one element of each input."""
    return tag.startswith((ELEMWISE, BROADCAST, INJECTIVE))


__all__ = ["BROADCAST", "COMM_REDUCE", "COMM_REDUCE_IDX", "ELEMWISE", "INJECTIVE", "is_broadcast", "is_injective"]
