"""Element-wise operators (unary.py, binary.py) and operators that make tensors (creation.py)."""

from tilewright.relay.op.tensor import binary, creation, unary  # noqa: F401
