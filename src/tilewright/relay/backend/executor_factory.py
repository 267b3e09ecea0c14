"""``tvm.relay.backend.executor_factory``: what ``relay.build`` gives, under TVM's name of its class."""

from tilewright.runtime.executor import GraphExecutorFactoryModule

__all__ = ["GraphExecutorFactoryModule"]
