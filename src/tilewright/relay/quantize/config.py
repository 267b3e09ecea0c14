"""The choices of a quantization, and what it has counted so far. ``tvm.relay.quantize``'s ``qconfig`` and context."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tilewright.ir.errors import TilewrightError, did_you_mean
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call


class QAnnotateKind:
    """Roles of quantized tensors, each with a number of bits and a data type in :class:`QConfig`."""

    IDENTITY = 0
    INPUT = 1
    WEIGHT = 2
    ACTIVATION = 3


_KINDS = {
    QAnnotateKind.IDENTITY: "identity",
    QAnnotateKind.INPUT: "input",
    QAnnotateKind.WEIGHT: "weight",
    QAnnotateKind.ACTIVATION: "activation",
}
_CHOICES = {
    "calibrate_mode": ("global_scale", "kl_divergence", "percentile"),
    "weight_scale": ("power2", "max"),
    "rounding": ("UPWARD", "TONEAREST"),
    "partition_conversions": ("disabled", "enabled", "fully_integral"),
}


def kind2str(kind: int) -> str:
    """Return the name of a :class:`QAnnotateKind`; KeyError if it is none."""
    return _KINDS[kind]


@dataclass(frozen=True)
class QConfig:
    """How a network is quantized; :func:`qconfig` makes one and says what the fields are.

    As a context, it is the current one: ``with qconfig(...): quantize(mod)``.
    """

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Sequence[int] | None = (0,)
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: Sequence[str] | None = None
    rounding: str = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                hint = did_you_mean(str(value), known)
                raise TilewrightError(f"{name} of qconfig is one of {', '.join(known)}, not {value!r}{hint}")

    def guard(self, ref_call: Call) -> bool:
        """Return whether the operator of a call may be quantized: ``debug_enabled_ops`` lists those, if it is given."""
        return self.debug_enabled_ops is None or ref_call.op.name in self.debug_enabled_ops  # type: ignore[attr-defined]

    def get_nbit_by_kind(self, kind: int) -> int:
        """Return the number of bits of a role."""
        bits: int = getattr(self, f"nbit_{kind2str(kind)}")
        return bits

    def get_dtype_by_kind(self, kind: int) -> str:
        """Return the data type of a role."""
        dtype: str = getattr(self, f"dtype_{kind2str(kind)}")
        return dtype

    def __enter__(self) -> Self:
        _scopes().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _scopes().pop()


_local = threading.local()


def _scopes() -> list[QConfig]:
    if not hasattr(_local, "scopes"):
        _local.scopes = []
    scopes: list[QConfig] = _local.scopes
    return scopes


def current_qconfig() -> QConfig:
    """Return the innermost configuration that is entered in this thread, or the default one."""
    scopes = _scopes()
    return scopes[-1] if scopes else QConfig()


def qconfig(**kwargs: Any) -> QConfig:
    """Return a configuration; fields that are not given have the defaults of :class:`QConfig`.

    Args:
        kwargs: fields. ``nbit_*`` and ``dtype_*``: bits and data types of inputs of products, weights, and sums.
            ``calibrate_mode``: "global_scale" (``global_scale`` is the largest number of every activation),
            "kl_divergence" or "percentile" (from a dataset). ``weight_scale``: the largest weight is rounded up to a
            power of 2 ("power2"), or not ("max"). ``skip_dense_layer``: dense layers stay in float.
            ``skip_conv_layers``: convolutions that do, by number from 0. ``do_simulation``: keep computing in float.
            ``round_for_shift``: right shifts round, instead of cutting off. ``debug_enabled_ops``: names of the only
            operators to quantize. ``rounding``: how products in fixed point round, "UPWARD" or "TONEAREST".
            ``calibrate_chunk_by``: how many tensors' numbers are in memory at a time; -1 for all.
            ``partition_conversions``: "enabled" puts the conversions of inputs and outputs in functions of their own,
            "fully_integral" also asserts that nothing between them is float.

    A name that is no field is warned of and left out, as TVM 0.8 leaves it out.
    """
    known = {f.name for f in dataclasses.fields(QConfig)}
    for name in kwargs.keys() - known:
        warnings.warn(f"qconfig has no field {name!r}{did_you_mean(name, known)}; it is left out", stacklevel=2)
    return QConfig(**{name: value for name, value in kwargs.items() if name in known})


class QuantizeContext:
    """Counts of an annotation: convolutions so far, and the quantized forms that tensors have already."""

    Current: ClassVar[QuantizeContext | None] = None

    def __init__(self) -> None:
        self.qnode_map: dict[Hashable, RelayExpr] = {}
        self._conv2d_counter = 0
        self._stop_quantize = False

    def check_to_skip(self, ref_call: Call) -> bool:
        """Return whether a call stays in float: quantizing has stopped, or it is a convolution to leave out."""
        if self._stop_quantize:
            return True
        skipped = current_qconfig().skip_conv_layers
        if skipped is None or ref_call.op.name != "nn.conv2d":  # type: ignore[attr-defined]
            return False
        number, self._conv2d_counter = self._conv2d_counter, self._conv2d_counter + 1
        return number in [int(index) for index in skipped]

    def stop_quantize(self) -> None:
        """Leave everything from here on in float."""
        self._stop_quantize = True

    def reset(self) -> None:
        """Forget the counts."""
        self.qnode_map = {}
        self._conv2d_counter = 0
        self._stop_quantize = False

    def __enter__(self) -> Self:
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self.qnode_map = {}


def quantize_context() -> QuantizeContext:
    """Return the context of this process."""
    if QuantizeContext.Current is None:
        QuantizeContext.Current = QuantizeContext()
    return QuantizeContext.Current
