"""Passes over Relay modules, one a file, in a package for each purpose. ``tvm.relay.transform``.

Calling a pass's name returns a ``Pass``, which maps modules: ``relay.transform.FuseOps()(mod)``.
"""

from collections.abc import Sequence

from tilewright.ir.load_on_use import load_on_use
from tilewright.ir.transform import (
    FunctionPass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    module_pass,
)
from tilewright.relay.op import mixed_precision as mixed_precision
from tilewright.relay.transform.annotate_spans import AnnotateSpans
from tilewright.relay.transform.autodiff.gradient import FirstOrderGradient, gradient
from tilewright.relay.transform.autodiff.lazy_gradient_init import LazyGradientInit
from tilewright.relay.transform.change_batch import ChangeBatch
from tilewright.relay.transform.check_indices import CheckIndices
from tilewright.relay.transform.devices.for_each_device import ForEachDevice
from tilewright.relay.transform.devices.place_operators import PlaceOperators
from tilewright.relay.transform.devices.plan_devices import PlanDevices
from tilewright.relay.transform.function_pass import function_pass
from tilewright.relay.transform.functional.dead_code_elimination import DeadCodeElimination
from tilewright.relay.transform.functional.defunctionalization import Defunctionalization
from tilewright.relay.transform.functional.eta_expand import EtaExpand
from tilewright.relay.transform.functional.inline import Inline, InlineExternal, InlineFunctions, RemoveUnusedFunctions
from tilewright.relay.transform.functional.lambda_lift import LambdaLift
from tilewright.relay.transform.functional.partial_evaluate import PartialEvaluate
from tilewright.relay.transform.functional.to_a_normal_form import (
    ToANormalForm,
    ToANormalFormExpr,
    ToBasicBlockNormalForm,
)
from tilewright.relay.transform.functional.to_cps import ToCPS, to_cps, un_cps
from tilewright.relay.transform.functional.to_graph_normal_form import ToGraphNormalForm
from tilewright.relay.transform.fusion.count_weights import CountWeights
from tilewright.relay.transform.fusion.defuse_ops import DefuseOps
from tilewright.relay.transform.fusion.fuse_ops import FuseOps
from tilewright.relay.transform.fusion.label_ops import LabelOps
from tilewright.relay.transform.hook_passes import CanonicalizeOps, FastMath, Legalize, SimplifyInference, TrimWindows
from tilewright.relay.transform.infer_type import InferType, InferTypeLocal
from tilewright.relay.transform.layout.alter_op_layout import AlterOpLayout
from tilewright.relay.transform.layout.auto_scheduler_layout_rewrite import AutoSchedulerLayoutRewrite
from tilewright.relay.transform.layout.convert_layout import ConvertLayout, LayoutConfig
from tilewright.relay.transform.layout.lift_conv1d import LiftConv1D
from tilewright.relay.transform.layout.lift_conv3d import LiftConv3D
from tilewright.relay.transform.layout.merge_rows import MergeRows
from tilewright.relay.transform.layout.pad_channels import PadChannels
from tilewright.relay.transform.layout.share_packed_weights import SharePackedWeights
from tilewright.relay.transform.memory.append_in_place import AppendInPlace, MarkSlack
from tilewright.relay.transform.memory.compute_in_bands import ComputeInBands
from tilewright.relay.transform.memory.isolate_views import IsolateViews
from tilewright.relay.transform.memory.manifest_alloc import ManifestAlloc
from tilewright.relay.transform.memory.plan_memory import MemoryPlan
from tilewright.relay.transform.memory.plan_views import PlanViews
from tilewright.relay.transform.memory.write_in_place import WriteInPlace
from tilewright.relay.transform.partition.annotate_target import AnnotateTarget
from tilewright.relay.transform.partition.explain_partition import OperatorFate, explain_partition
from tilewright.relay.transform.partition.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.partition.merge_composite import MergeComposite
from tilewright.relay.transform.partition.partition_graph import PartitionGraph, RegionCost
from tilewright.relay.transform.precision.compute_in_float32 import ComputeInFloat32
from tilewright.relay.transform.precision.halve_weights import HalveWeights, MixPrecision
from tilewright.relay.transform.precision.keep_half_precision import KeepHalfPrecision
from tilewright.relay.transform.precision.narrow_factors import NarrowFactors
from tilewright.relay.transform.precision.share_halves import ShareHalves
from tilewright.relay.transform.precision.to_mixed_precision import ToMixedPrecision
from tilewright.relay.transform.precision.widen_weights import PackNarrow, WidenWeights
from tilewright.relay.transform.recast import recast
from tilewright.relay.transform.recognize.recognize_activations import RecognizeActivations
from tilewright.relay.transform.recognize.recognize_attention import RecognizeAttention
from tilewright.relay.transform.recognize.recognize_layer_norm import RecognizeLayerNorm
from tilewright.relay.transform.simplify.bubble_up_slice import BubbleUpSlice
from tilewright.relay.transform.simplify.canonicalize_cast import CanonicalizeCast
from tilewright.relay.transform.simplify.combine_parallel import (
    BatchingOps,
    CombineParallelBatchMatmul,
    CombineParallelConv2D,
    CombineParallelDense,
)
from tilewright.relay.transform.simplify.dynamic_to_static import DynamicToStatic
from tilewright.relay.transform.simplify.eliminate_common_subexpr import EliminateCommonSubexpr
from tilewright.relay.transform.simplify.fold_constant import FoldConstant, FoldConstantExpr
from tilewright.relay.transform.simplify.fold_empty import FoldEmpty
from tilewright.relay.transform.simplify.fold_explicit_padding import FoldExplicitPadding
from tilewright.relay.transform.simplify.fold_scale_axis import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)
from tilewright.relay.transform.simplify.merge_transposes import MergeTransposes
from tilewright.relay.transform.simplify.simplify_expr import SimplifyExpr
from tilewright.relay.transform.simplify.sink_reshape import SinkReshape
from tilewright.relay.transform.simplify.sparse_weights import Conv2dToSparse, DenseToSparse, SimplifyFCTranspose
from tilewright.relay.transform.simplify.split_args import SplitArgs
from tilewright.relay.transform.simplify.write_out_dynamic import WriteOutDynamic

__getattr__, __dir__ = load_on_use(
    __name__,
    names={
        "tilewright.relay.qnn.fake_quantization": ("FakeQuantizationToInteger",),
        "tilewright.relay.backend.lower_te": ("LowerTE",),
    },
)


def build_config(
    opt_level: int = 2,
    required_pass: Sequence[str] | None = None,
    disabled_pass: Sequence[str] | None = None,
) -> PassContext:
    """``PassContext`` under the name that older programs use, as ``relay.build_config``."""
    return PassContext(opt_level, required_pass, disabled_pass)


__all__ = [
    "AlterOpLayout",
    "AnnotateSpans",
    "AnnotateTarget",
    "AppendInPlace",
    "AutoSchedulerLayoutRewrite",
    "BackwardFoldScaleAxis",
    "BatchingOps",
    "BubbleUpSlice",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "ChangeBatch",
    "CheckIndices",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "ComputeInBands",
    "ComputeInFloat32",
    "Conv2dToSparse",
    "ConvertLayout",
    "CountWeights",
    "DeadCodeElimination",
    "Defunctionalization",
    "DefuseOps",
    "DenseToSparse",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "EtaExpand",
    "FastMath",
    "FirstOrderGradient",
    "FoldConstant",
    "FoldConstantExpr",
    "FoldEmpty",
    "FoldExplicitPadding",
    "FoldScaleAxis",
    "ForEachDevice",
    "ForwardFoldScaleAxis",
    "FunctionPass",
    "FuseOps",
    "HalveWeights",
    "InferType",
    "InferTypeLocal",
    "Inline",
    "InlineExternal",
    "InlineFunctions",
    "IsolateViews",
    "KeepHalfPrecision",
    "LabelOps",
    "LambdaLift",
    "LayoutConfig",
    "LazyGradientInit",
    "Legalize",
    "LiftConv1D",
    "LiftConv3D",
    "ManifestAlloc",
    "MarkSlack",
    "MemoryPlan",
    "MergeCompilerRegions",
    "MergeComposite",
    "MergeRows",
    "MergeTransposes",
    "MixPrecision",
    "NarrowFactors",
    "OperatorFate",
    "PackNarrow",
    "PadChannels",
    "PartialEvaluate",
    "PartitionGraph",
    "Pass",
    "PassContext",
    "PassInfo",
    "PlaceOperators",
    "PlanDevices",
    "PlanViews",
    "PrintIR",
    "RecognizeActivations",
    "RecognizeAttention",
    "RecognizeLayerNorm",
    "RegionCost",
    "RemoveUnusedFunctions",
    "Sequential",
    "ShareHalves",
    "SharePackedWeights",
    "SimplifyExpr",
    "SimplifyFCTranspose",
    "SimplifyInference",
    "SinkReshape",
    "SplitArgs",
    "ToANormalForm",
    "ToANormalFormExpr",
    "ToBasicBlockNormalForm",
    "ToCPS",
    "ToGraphNormalForm",
    "ToMixedPrecision",
    "TrimWindows",
    "WidenWeights",
    "WriteInPlace",
    "WriteOutDynamic",
    "build_config",
    "explain_partition",
    "function_pass",
    "gradient",
    "module_pass",
    "recast",
    "to_cps",
    "un_cps",
]  # fmt: skip
