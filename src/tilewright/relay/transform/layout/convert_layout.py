"""ConvertLayout: bring chosen operators to a given layout.

``ConvertLayout({"nn.conv2d": ["NHWC", "default"]})`` before::

    nn.conv2d(%d, %w, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3])

after::

    %0 = layout_transform(%d, src_layout="NCHW", dst_layout="NHWC");
    %1 = layout_transform(%w, src_layout="OIHW", dst_layout="HWIO");
    %2 = nn.conv2d(%0, %1, ..., data_layout="NHWC", kernel_layout="HWIO");
    layout_transform(%2, src_layout="NHWC", dst_layout="NCHW")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import Type
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.transform.common import typed_function_pass
from tilewright.relay.transform.hook_passes import CanonicalizeOps
from tilewright.relay.transform.layout.layout_rewriter import LayoutRewriter, RewriteHook


class LayoutConfig:
    """Context in which ConvertLayout skips the ``nn.conv2d`` with the numbers ``skip_layers``, from 0.

    ::

        with LayoutConfig(skip_layers=[0]):
            mod = ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(mod)

    Convolutions are counted from the inputs on, in the order of the text, through all functions of the block.
    """

    current: ClassVar[LayoutConfig | None] = None

    def __init__(self, skip_layers: Sequence[int] | None = None) -> None:
        self.skip_layers = frozenset(skip_layers or ())
        self._seen = 0
        self._outer: LayoutConfig | None = None

    def skips_next(self) -> bool:
        """Count one more convolution, and return whether it is skipped."""
        self._seen += 1
        return self._seen - 1 in self.skip_layers

    check_skip = skips_next  # TVM's name

    def reset(self) -> None:
        """Count convolutions from 0 again."""
        self._seen = 0

    def __enter__(self) -> Self:
        self._outer, LayoutConfig.current = LayoutConfig.current, self
        self._seen = 0
        return self

    def __exit__(self, *exc: object) -> None:
        LayoutConfig.current = self._outer


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:
    """Convert the named operators to the layouts of data, kernel, ...; the operator chooses a "default" one."""

    def hook_of(op: Op) -> RewriteHook | None:
        convert = op.get_attr("FTVMConvertOpLayout")
        if convert is None or op.name not in desired_layouts:
            return None
        wanted = list(desired_layouts[op.name])

        def hook(attrs: Any, args: list[RelayExpr], types: list[Type], call: Call) -> RelayExpr | None:
            if op is Conv2D.op and LayoutConfig.current is not None and LayoutConfig.current.skips_next():
                return None
            result: RelayExpr | None = convert(attrs, args, types, wanted)
            return result

        return hook

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = LayoutRewriter(hook_of).visit(func)
        return result

    convert = typed_function_pass(run, "ConvertLayout", 3)

    def canonicalize_and_convert(mod: IRModule, ctx: PassContext) -> IRModule:
        return convert.transform(CanonicalizeOps().transform(mod, ctx), ctx)

    return ModulePass(canonicalize_and_convert, PassInfo(3, "ConvertLayout", ("InferType", "CanonicalizeOps")))
