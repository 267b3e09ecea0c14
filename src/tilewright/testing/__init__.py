"""Helpers shared by tests and benchmarks, and TVM 0.8's ``tvm.testing``.

`numerical`, `targets`, `plugin`: TVM's names. `zoo`: real networks with random weights, exported to ONNX.
`quantized`, `backend_kit`: quantized networks, and the conformance checks of back ends.
"""

from typing import Any

from tilewright.runtime.registry import get_global_func, register_func

from .numerical import (
    assert_allclose,
    assert_prim_expr_equal,
    check_bool_expr_is_true,
    check_int_constraints_trans_consistency,
    check_numerical_grads,
)
from .targets import (
    device_enabled,
    enabled_targets,
    exclude_targets,
    fixture,
    known_failing_targets,
    parameter,
    parameters,
    parametrize_targets,
    requires_cuda,
    requires_gpu,
    requires_llvm,
    requires_metal,
    requires_micro,
    requires_opencl,
    requires_package,
    requires_rocm,
    requires_rpc,
    requires_vulkan,
    uses_gpu,
)


@register_func("testing.echo", override=True)
def _echo(value: Any) -> Any:
    return value


echo = get_global_func("testing.echo")  # gives back what it is given, through the runtime

__all__ = [
    "assert_allclose",
    "assert_prim_expr_equal",
    "check_bool_expr_is_true",
    "check_int_constraints_trans_consistency",
    "check_numerical_grads",
    "device_enabled",
    "echo",
    "enabled_targets",
    "exclude_targets",
    "fixture",
    "known_failing_targets",
    "parameter",
    "parameters",
    "parametrize_targets",
    "requires_cuda",
    "requires_gpu",
    "requires_llvm",
    "requires_metal",
    "requires_micro",
    "requires_opencl",
    "requires_package",
    "requires_rocm",
    "requires_rpc",
    "requires_vulkan",
    "uses_gpu",
]
