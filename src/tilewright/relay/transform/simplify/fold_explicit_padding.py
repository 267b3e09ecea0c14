"""FoldExplicitPadding: put a zero padding into the convolution or pooling that follows.

Before::

    %0 = nn.pad(%x, 0, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
    nn.conv2d(%0, %w, kernel_size=[3, 3])

after::

    nn.conv2d(%x, %w, padding=[1, 1, 1, 1], kernel_size=[3, 3])
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Function, scalar_value
from tilewright.relay.transform.common import typed_function_pass
from tilewright.relay.visitor import ExprRewriter
from tilewright.tir.layout import layout

_SPATIAL = {"nn.conv1d": "W", "nn.conv2d": "HW", "nn.conv3d": "DHW", "nn.avg_pool2d": "HW", "nn.max_pool2d": "HW"}


class _PaddingFolder(ExprRewriter):
    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if not isinstance(post.op, Op) or post.op.name not in _SPATIAL or not post.args:
            return post
        source = post.args[0]
        if not (isinstance(source, Call) and isinstance(source.op, Op) and source.op.name == "nn.pad"):
            return post
        attrs = self._merged(post, source)
        if attrs is None:
            return post
        return Call(post.op, [source.args[0], *post.args[1:]], attrs, post.type_args, post.span)

    @staticmethod
    def _merged(call: Call, pad: Call) -> Any:
        """The attributes with the padding added, or None when the padding cannot be folded."""
        attrs: Any = call.attrs
        pad_attrs: Any = pad.attrs
        name = call.op.name  # type: ignore[attr-defined]
        value = scalar_value(pad.args[1]) if len(pad.args) > 1 else 0.0
        # A maximum ignores the pad value only where it is the lowest of all; a mean counts the padded zeros.
        expected = float("-inf") if name == "nn.max_pool2d" else 0.0
        if pad_attrs.pad_mode != "constant" or value is None or float(value) != expected:
            return None
        axes = layout(attrs.layout if "pool" in name else attrs.data_layout)
        letters = _SPATIAL[name]
        if not axes or any(axes.index_of(a) < 0 or axes.factor_of(a) > 0 for a in letters):
            return None
        width = {letter: (int(w[0]), int(w[1])) for (letter, _), w in zip(axes.axes, pad_attrs.pad_width, strict=True)}
        if any(w != (0, 0) for letter, w in width.items() if letter not in letters):
            return None
        if any(v < 0 for w in width.values() for v in w):
            return None
        rank = len(letters)
        padding = [int(p) for p in attrs.padding]
        padding = padding * 2 if len(padding) == rank else padding * (2 * rank) if len(padding) == 1 else padding
        if name == "nn.avg_pool2d":
            if any(padding) and not attrs.count_include_pad:
                return None
            attrs = attrs.replace(count_include_pad=True)
        before = [padding[i] + width[a][0] for i, a in enumerate(letters)]
        after = [padding[i + rank] + width[a][1] for i, a in enumerate(letters)]
        return attrs.replace(padding=tuple(before + after))


def FoldExplicitPadding() -> Pass:
    """Fold nn.pad into the convolution or pooling that uses it."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _PaddingFolder().visit(func)
        return result

    return typed_function_pass(run, "FoldExplicitPadding", 0)
