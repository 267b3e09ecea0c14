"""The intrinsics of scalar expressions (``tir.exp``, ``tir.likely``, ...), each declared once with its effect.

``pure`` calls may be moved, merged and dropped; ``read`` depends on memory; ``update`` and ``opaque`` must stay where
they are.
"""

from tilewright.ir.op import register_intrin

_INTRINSICS: dict[str, str] = {
    # float math, element-wise: one argument and result of the same dtype
    "exp exp2 exp10 erf normal_tail tanh sigmoid log log2 log10 log1p expm1 sqrt rsqrt sin sinh cos cosh tan acos "
    "acosh asin asinh atan atanh floor ceil trunc round nearbyint fabs fma pow atan2 nextafter hypot copysign ldexp "
    "fmod isnan isinf isfinite isnullptr popcount clz abs "
    "shift_left shift_right bitwise_and bitwise_or bitwise_xor bitwise_not "
    "likely if_then_else large_uint_imm q_multiply_shift reinterpret byte_index vectorhigh vectorlow vectorcombine "
    "call_pure_extern call_llvm_pure_intrin tvm_thread_context type_annotation address_of lookup_param": "pure",
    "tvm_struct_get tvm_access_ptr": "read",
    "tvm_struct_set ret": "update",
    "call_extern call_llvm_intrin tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array tvm_call_packed "
    "tvm_call_cpacked tvm_call_packed_lowered tvm_call_cpacked_lowered tvm_call_trace_packed "
    "tvm_call_trace_packed_lowered "
    "tvm_check_return tvm_tuple tvm_handle_is_null tvm_static_handle tvm_context_id tvm_throw_last_error "
    "tvm_report_index tvm_report_shape "
    "atomic_add tvm_storage_sync tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down tvm_warp_activemask "
    "tvm_thread_allreduce tvm_global_barrier_kinit prefetch "
    "TVMBackendAllocWorkspace TVMBackendFreeWorkspace call_spirv_pure_glsl450 tvm_fill_fragment "
    "tvm_load_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_store_matrix_sync ptx_mma": "opaque",
}  # fmt: skip

for _names, _effect in _INTRINSICS.items():
    for _name in _names.split():
        register_intrin(f"tir.{_name}", _effect)
