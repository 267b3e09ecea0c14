"""Element-wise operators (unary.py, binary.py, lookup.py) and operators that make tensors (creation.py)."""

from tilewright.relay.op.tensor import binary, creation, lookup, unary  # noqa: F401
