"""The fused functions of a network: ``relay.analysis.extract_fused_functions``."""

from __future__ import annotations

from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.ir.transform import PassContext, Sequential
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.transform.fusion.fuse_ops import FuseOps
from tilewright.relay.transform.hook_passes import SimplifyInference
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order


def extract_fused_functions(mod: IRModule) -> dict[str, Function]:
    """Return the distinct primitive functions of ``main`` after simplification and fusion, by structural hash.

    ``mod`` is not changed.
    """
    with PassContext(opt_level=3):
        fused = Sequential([InferType(), SimplifyInference(), FuseOps(3)])(mod)
    kernels = [e for e in post_order(fused["main"]) if isinstance(e, Function) and PRIMITIVE.on(e)]
    return {str(structural_hash(kernel)): kernel for kernel in kernels}
