"""What schedules may know of the network that their kernel is part of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_network_weights: ContextVar[int] = ContextVar("network_weights", default=0)


@contextmanager
def weights_of_network(size: int) -> Iterator[None]:
    """While kernels of a network with weights of ``size`` bytes in all are scheduled."""
    token = _network_weights.set(size)
    try:
        yield
    finally:
        _network_weights.reset(token)


def network_weight_bytes() -> int:
    """The size of all weights of the network, 0 for a kernel alone."""
    return _network_weights.get()
