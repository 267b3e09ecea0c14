"""The graph executor for debugging under TVM 0.8's name: ``from tilewright.contrib.debugger import debug_executor``."""

from tilewright.runtime.executor.debug import GraphModuleDebug, create

__all__ = ["GraphModuleDebug", "create"]
