"""``tvm.relay.backend.executor_factory``: TVM's name of the classes that ``relay.build`` returns."""

from tilewright.runtime.executor import GraphExecutorFactoryModule

__all__ = ["GraphExecutorFactoryModule"]
