"""TVM's place of ``mangle_module_name``."""

from tilewright.relay.name_transforms import mangle_module_name

__all__ = ["mangle_module_name"]
