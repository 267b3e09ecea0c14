"""Cases of ATen's operators, by family: a function of tensors, and the tensors."""

from tests.relay.frontend.torch_operators import elementwise, images, indexing, networks, reductions, shapes
from tests.relay.frontend.torch_operators.case import CASES, Case

__all__ = ["CASES", "Case", "elementwise", "images", "indexing", "networks", "reductions", "shapes"]
