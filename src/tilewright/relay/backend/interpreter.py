"""TVM 0.8's names of values and of the interpreting executor (``tilewright.relay.backend.interpreter``)."""

from tilewright.relay.backend.executor import Executor, Interpreter
from tilewright.relay.interpreter import ConstructorValue, RefValue

__all__ = ["ConstructorValue", "Executor", "Interpreter", "RefValue"]
