"""oneDNN: which part of a network it gets (``partition.py``), and that as JSON for the runtime (``serializer.py``)."""

from tilewright.relay.backend.contrib.dnnl.partition import explain, partition
from tilewright.relay.backend.contrib.dnnl.serializer import compile_region

__all__ = ["compile_region", "explain", "partition"]
