"""Element-wise operators (unary.py, binary.py) and operators that make tensors (creation.py)."""
