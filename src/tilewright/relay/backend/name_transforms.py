"""TVM's name of ``relay.name_transforms``."""

from tilewright.relay.name_transforms import (
    mangle_module_name,
    prefix_generated_name,
    prefix_name,
    sanitize_name,
    to_c_constant_style,
    to_c_function_style,
    to_c_variable_style,
)

__all__ = [
    "mangle_module_name", "prefix_generated_name", "prefix_name", "sanitize_name", "to_c_constant_style",
    "to_c_function_style", "to_c_variable_style",
]  # fmt: skip
