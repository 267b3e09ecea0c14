"""The debug executor under the name that it had before TVM 0.8."""

from tilewright.runtime.executor.debug import GraphModuleDebug, create

__all__ = ["GraphModuleDebug", "create"]
