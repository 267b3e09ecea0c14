"""Products of rows that are rounded to int8, by block, with codes in bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright import tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm
from tilewright.topi.cpu.byte_products import add_pairs, dot_product, pair_sums, signed_as
from tilewright.topi.cpu.common import machine, measured
from tilewright.topi.cpu.nbits.kernel import CHUNK_BYTES, GROUP, Kernel
from tilewright.topi.nn.nbits import WORD_BITS, default_zero

_UNROLLED = 8  # words of a span
_PARTS = 8  # vectors of codes that stay in registers while many rows are multiplied with them
_PANELS = 4  # whose totals are stored together
_MOST_ROWS = 256  # whose sums stay in the first cache
_LARGEST = 127  # of a rounded number
_LARGEST_SHORT = (1 << 15) - 1


@dataclass
class _Rounded:
    """Rows of int8 (blocks, rows, depth), the scales of their blocks (blocks, rows), and sums (blocks, rows, spans).

    ``starts``, likewise, are what ``_ShortSums`` begin with: None for other sums.
    """

    numbers: Any
    scales: Any
    sums: Any
    starts: Any = None


class _Sums(Protocol):
    """How products with the codes, less ``less``, are summed: by spans of ``span`` words of a block."""

    dtype: str
    less: int
    span: int

    def start(self, rounded: _Rounded, at: Any) -> Any:
        """Return what the sums of the span ``at`` begin with."""

    def part(self, part: Any) -> Any:
        """Return four codes in each lane as ``add`` takes them."""

    def add(self, sums: Any, part: Any, value: Any) -> Any:
        """Return the sums with the products of four codes in each lane and four of a row's numbers."""

    def whole(self, sums: Any) -> Any:
        """Return the sums in int32."""


class _WordSums:
    """Sums in int32 by one instruction: of codes as they are, and less the default zero point from the start."""

    def __init__(self, k: Kernel) -> None:
        self.k, self.span, self.dtype = k, k.words, k.vector("int32")
        self.less = default_zero(k.bits) if k.zeros is None else 0

    def start(self, rounded: _Rounded, at: Any) -> Any:
        if not self.less:
            return ops.const(0, self.dtype)
        return ops.cast(self.dtype, rounded.sums[at] * ops.const(-self.less, "int32"))

    def part(self, part: Any) -> Any:
        return part

    def add(self, sums: Any, part: Any, value: Any) -> Any:
        return dot_product(self.k.form, sums, part, value)  # type: ignore[arg-type]

    def whole(self, sums: Any) -> Any:
        return sums


class _SignSums(_WordSums):
    """Sums in int32 of codes of 8 bits less 128: their signs go to the row's numbers, so that no pair saturates."""

    def __init__(self, k: Kernel) -> None:
        super().__init__(k)
        self.less = default_zero(k.bits)
        self.span = min(k.words, _PARTS // 2)  # each part beside its absolute value

    def start(self, rounded: _Rounded, at: Any) -> Any:
        return ops.const(0, self.dtype)

    def part(self, part: Any) -> Any:
        return ops.bitwise_xor(part, ops.cast(self.dtype, ops.const(-0x7F7F7F80, "int32")))

    def add(self, sums: Any, part: Any, value: Any) -> Any:
        lanes = self.k.lanes
        pairs = pair_sums(lanes, signed_as(lanes, part, part), signed_as(lanes, value, part))
        return sums + add_pairs(lanes, pairs)


class _ShortSums:
    """Sums of pairs in int16, of so few that those of codes less the default zero point fit.

    They begin with what the zero point takes off, so that only the last sums have to fit: additions wrap around.
    """

    def __init__(self, k: Kernel) -> None:
        self.k, self.less, self.dtype = k, default_zero(k.bits), f"int16x{2 * k.lanes}"
        fit = _LARGEST_SHORT // (2 * _LARGEST * self.less)
        self.span = min(k.words, min(fit, _PARTS) // (8 // k.bits))

    def start(self, rounded: _Rounded, at: Any) -> Any:
        starts = ops.cast(self.k.vector("int32"), rounded.starts[at])
        return tir.call_intrin(self.dtype, "tir.reinterpret", starts)

    def part(self, part: Any) -> Any:
        return part

    def add(self, sums: Any, part: Any, value: Any) -> Any:
        return sums + pair_sums(self.k.lanes, part, value)

    def whole(self, sums: Any) -> Any:
        return add_pairs(self.k.lanes, sums)


_SUMS = {"maddubs": _ShortSums, "signs": _SignSums}


def _spans(k: Kernel, sums: _Sums, write: Callable[[Any, int], None]) -> None:
    """Write the loops over the spans of a block: ``write`` takes the number of one, and how many words it has."""
    whole, rest = divmod(k.words, sums.span)
    if whole == 1:
        write(ops.const(0, "int32"), sums.span)
    else:
        with k.ib.for_range(0, whole, name="span") as number:
            write(number, sums.span)
    if rest:
        write(ops.const(whole, "int32"), rest)


class ByteRows:
    """Sums in whole numbers by span, which are scaled in float32."""

    def __init__(self, k: Kernel) -> None:
        assert k.form is not None
        kind: Any = _SUMS.get(k.form.name)
        self.k, self.each = k, 8 // k.bits
        self.sums: _Sums = (kind or _WordSums)(k)
        self.most = 8 if machine().vector_registers >= 32 else 4
        self.least_shared = 2 * self.most if kind else None
        self.row_bytes = k.width
        self.rounded = _rounded(k, self.sums)

    def _parts(self, words: Any) -> list[Any]:
        """Return a word's codes, four in each lane."""
        k, ib, vector = self.k, self.k.ib, self.k.vector("int32")
        if k.bits == 8:
            return [ib.let("part", self.sums.part(words))]
        mask = ops.cast(vector, ops.const(sum(((1 << k.bits) - 1) << (8 * j) for j in range(GROUP)), "int32"))
        shifted = (ops.shift_right(words, ops.const(k.bits * s, vector)) for s in range(self.each))
        return [ib.let("part", self.sums.part(ops.bitwise_and(s, mask))) for s in shifted]

    def _value(self, row: Any, b: Any, step: Any) -> Any:
        """Return four bytes of a row in every lane."""
        k = self.k
        ramp = tir.Ramp((b * k.rows + row) * k.depth + step * GROUP, ops.const(1), GROUP)
        four = tir.Load(f"int8x{GROUP}", self.rounded.numbers.asobject(), ramp)
        return ops.cast(k.vector("int32"), tir.call_intrin("int32", "tir.reinterpret", four))

    def _span_at(self, row: Any, b: Any, span: Any) -> Any:
        return (b * self.k.rows + row) * -(-self.k.words // self.sums.span) + span

    def _scaled(self, sums: Any, row: Any, b: Any, span: Any, factors: tuple[Any, Any]) -> Any:
        """Return a span's sums, less what the zero points take off, scaled. ``factors``: scales and zero points."""
        k, rounded, vector = self.k, self.rounded, self.k.vector("float32")
        scale, zero = factors
        total = ops.cast(vector, self.sums.whole(sums))
        if zero is not None:
            total = total - zero * ops.cast(vector, ops.cast("float32", rounded.sums[self._span_at(row, b, span)]))
        return total * (scale * ops.cast(vector, rounded.scales[b * k.rows + row]))

    def _factors(self, panel: Any, b: Any) -> tuple[Any, Any]:
        """Return the scales of a block, and its zero points less what codes have been lessened by."""
        k, less = self.k, ops.const(float(self.sums.less), self.k.vector("float32"))
        zero = None if k.zeros is None else k.ib.let("zero", k.zero_at(panel, b) - less)
        return k.ib.let("scale", k.scale_at(panel, b)), zero

    # ---------------------------------------------------------------------------------------------- in registers

    def in_registers(self, panel: Any, first: Any, rows: int) -> None:
        """Multiply rows from ``first`` on with a panel, whose codes are unpacked in registers."""
        k = self.k
        with k.ib.new_scope():
            totals = k.local("float32", rows, "totals")
            with k.ib.for_range(0, k.blocks, name="block") as b:
                if rows == 1:
                    k.fetch_ahead(k.scales, (panel * k.blocks + b) * k.lanes)
                factors = self._factors(panel, b)
                add = functools.partial(self._add_span, totals, panel, [first + i for i in range(rows)], b, factors)
                _spans(k, self.sums, add)
            for i in range(rows):
                k.store(panel, first + i, totals[i])

    def _add_span(
        self, totals: Any, panel: Any, rows: Sequence[Any], b: Any, factors: tuple[Any, Any], span: Any, count: int
    ) -> None:
        """Add the products of a span with some rows to their totals."""
        k, ib = self.k, self.k.ib
        sums = k.registers(self.sums.dtype, len(rows), "sums")
        for i, row in enumerate(rows):
            sums[i] = self.sums.start(self.rounded, self._span_at(row, b, span))
        with ib.for_range(0, count, name="word", kind="unroll" if count <= _UNROLLED else "serial") as place:
            w = span * self.sums.span + place
            words = ib.let("words", k.words_at(panel, b, w))
            if len(rows) == 1:
                k.fetch_ahead(k.codes, ((panel * k.blocks + b) * k.words + w) * k.lanes)
            for s, part in enumerate(self._parts(words)):
                for i, row in enumerate(rows):
                    sums[i] = self.sums.add(sums[i], part, self._value(row, b, w * self.each + s))
        for i, row in enumerate(rows):
            totals[i] = totals[i] + self._scaled(sums[i], row, b, span, factors)

    # ------------------------------------------------------------------------------------------------ shared codes

    def shared(self) -> None:
        """Multiply all rows with each panel, a span of whose codes is unpacked in registers for many of them.

        Totals of a few panels are stored together, whole cache lines of each row.
        """
        k, ib = self.k, self.k.ib
        at_once = min(_MOST_ROWS, max(1, CHUNK_BYTES // self.row_bytes))
        groups = -(-k.panels // _PANELS)
        chunk = ib.for_range(0, ops.floordiv(k.rows + (at_once - 1), at_once), name="chunk")
        with chunk as c, ib.for_range(0, groups, name="group", kind=k.kind()) as group:
            rows = c * at_once, ops.minimum(k.rows - c * at_once, at_once)
            first = group * _PANELS
            panels = ops.minimum(k.panels - first, _PANELS)
            totals = ib.allocate("float32", (_PANELS * at_once * k.lanes,), name="totals", scope="global")
            with ib.for_range(0, panels, name="panel") as panel:
                self._multiply_many(totals, panel * at_once, first + panel, rows)
            with ib.for_range(0, rows[1], name="row") as row, ib.for_range(0, panels, name="panel") as panel:
                k.store(first + panel, rows[0] + row, self._total(totals, panel * at_once + row))

    def _multiply_many(self, totals: Any, base: Any, panel: Any, rows: tuple[Any, Any]) -> None:
        """Write the totals of many rows and a panel, from the vector ``base`` on."""
        k, ib = self.k, self.k.ib
        with ib.for_range(0, rows[1], name="row") as row:
            self._put(totals, base + row, ops.const(0.0, k.vector("float32")))
        with ib.for_range(0, k.blocks, name="block") as b:
            factors = self._factors(panel, b)
            _spans(k, self.sums, functools.partial(self._add_span_of_many, totals, base, panel, rows, b, factors))

    def _place(self, vector: Any) -> Any:
        return tir.Ramp(vector * self.k.lanes, ops.const(1), self.k.lanes)

    def _total(self, totals: Any, vector: Any) -> Any:
        return tir.Load(self.k.vector("float32"), totals.asobject(), self._place(vector))

    def _put(self, totals: Any, vector: Any, value: Any) -> None:
        self.k.ib.emit(tir.Store(totals.asobject(), value, self._place(vector)))

    def _add_span_of_many(
        self, totals: Any, base: Any, panel: Any, rows: tuple[Any, Any], b: Any, factors: tuple[Any, Any], span: Any,
        count: int,
    ) -> None:  # fmt: skip
        """Add the products of a span with many rows to their totals."""
        k, ib = self.k, self.k.ib
        first, words = span * self.sums.span, range(count)
        parts = [p for w in words for p in self._parts(ib.let("words", k.words_at(panel, b, first + w)))]
        with ib.for_range(0, rows[1], name="row") as place:
            row = ib.let("row", rows[0] + place)
            sums = self.sums.start(self.rounded, self._span_at(row, b, span))
            for step, part in enumerate(parts):
                sums = self.sums.add(sums, part, self._value(row, b, first * self.each + step))
            total = self._total(totals, base + place)
            self._put(totals, base + place, total + self._scaled(sums, row, b, span, factors))


# ------------------------------------------------------------------------------------------------------------ rounding


def _rounded(k: Kernel, sums: _Sums) -> _Rounded:
    """Round the rows to int8 by block."""
    ib, count = k.ib, k.rows * k.blocks
    spans = -(-k.words // sums.span)
    made = _Rounded(
        ib.allocate("int8", (count * k.depth,), name="rounded", scope="global"),
        ib.allocate("float32", (count,), name="row_scales", scope="global"),
        ib.allocate("int32", (count * spans,), name="row_sums", scope="global"),
    )
    if isinstance(sums, _ShortSums):
        made.starts = ib.allocate("int32", (count * spans,), name="row_starts", scope="global")
    rows = int(k.rows) if isinstance(k.rows, IntImm) else None
    kind = "serial" if rows is not None and rows < 2 * measured().threads.least_tasks else "parallel"
    whole = isinstance(k.size, IntImm) and k.depth == k.block
    full = int(k.size) // k.block if whole else 0
    with ib.for_range(0, k.rows, name="row", kind=kind) as row:
        for begin, end, plain in ((0, full, True), (full, k.blocks, False)):
            if begin < end:
                with ib.for_range(begin, end, name="block") as b:
                    _Rounding(k, made, sums, row, b, plain).write()
    return made


@dataclass
class _Rounding:
    """A block of a row. ``plain``: it is a full one."""

    k: Kernel
    made: _Rounded
    sums: _Sums
    row: Any
    b: Any
    plain: bool

    def __post_init__(self) -> None:
        self.lanes = self.k.lanes if self.plain and self.k.depth % self.k.lanes == 0 else 1
        vector = f"x{self.lanes}" if self.lanes > 1 else ""
        self.floats, self.words, self.bytes = (f"{dtype}{vector}" for dtype in ("float32", "int32", "int8"))
        self.at = self.b * self.k.rows + self.row

    def _value(self, step: Any) -> Any:
        k = self.k
        if self.plain:
            return k.data.vload([self.row, self.b * k.block + step * self.lanes], self.floats)
        return k.value(self.row, self.b, step)

    def write(self) -> None:
        """Write its rounded numbers, their scale and sums.

        The bits of absolute values compare as the values do, with NaN above all: whole numbers need no care for it.
        """
        k, ib = self.k, self.k.ib
        most = k.registers(self.words, 1, "most")
        most[0] = ops.const(0, self.words)
        with ib.for_range(0, k.depth // self.lanes, name="step") as step:
            bits = tir.call_intrin(self.words, "tir.reinterpret", tir.abs(self._value(step)))
            most[0] = ops.maximum(most[0], bits)
        highest = _across(most[0], self.lanes, "smax")
        largest = ib.let("largest", tir.call_intrin("float32", "tir.reinterpret", highest))
        scale = ib.let("row_scale", largest * ops.const(1 / _LARGEST, "float32"))
        self.made.scales[self.at] = scale
        factor = tir.Select(scale > ops.const(0.0, "float32"), ops.const(1.0, "float32") / scale, scale)
        inverse = ops.cast(self.floats, ib.let("inverse", factor))
        _spans(k, self.sums, functools.partial(self._write_span, inverse))

    def _write_span(self, inverse: Any, span: Any, words: int) -> None:
        """Write the rounded numbers of a span of so many words, and their sums."""
        k, ib, lanes, made = self.k, self.k.ib, self.lanes, self.made
        each = WORD_BITS // k.bits
        at_span = self.at * -(-k.words // self.sums.span) + span
        total, even = k.registers(self.words, 1, "total"), k.registers(self.words, 1, "even")
        total[0], even[0] = ops.const(0, self.words), ops.const(0, self.words)
        with ib.for_range(0, words * each // lanes, name="step") as step:
            place = ib.let("place", span * (self.sums.span * each) + step * lanes)
            nearest = tir.nearbyint(self._value(ops.floordiv(place, lanes)) * inverse)
            whole = ib.let("whole", ops.cast(self.words, nearest))
            total[0] = total[0] + whole
            if made.starts is not None:
                even[0] = even[0] + self._of_even_pairs(whole, place)
            at = self.at * k.depth + place
            index = at if lanes == 1 else tir.Ramp(at, ops.const(1), lanes)
            ib.emit(tir.Store(made.numbers.asobject(), ops.cast(self.bytes, whole), index))
        whole = ib.let("sum", _across(total[0], lanes, "add"))
        made.sums[at_span] = whole
        if made.starts is not None:
            first = ib.let("sum_of_even", _across(even[0], lanes, "add"))
            less = ops.const(-self.sums.less, "int32")
            low = ops.bitwise_and(first * less, ops.const(0xFFFF, "int32"))
            high = ops.shift_left((whole - first) * less, ops.const(16, "int32"))
            made.starts[at_span] = ops.bitwise_or(low, high)

    def _of_even_pairs(self, whole: Any, place: Any) -> Any:
        """Return numbers at places 0, 1, 4, 5, ..., whose products an int16 lane of even number sums; 0 for others."""
        places = place if self.lanes == 1 else tir.Ramp(place, ops.const(1), self.lanes)
        odd = ops.bitwise_and(places, ops.const(2, self.words))
        return tir.Select(ops.equal(odd, ops.const(0, self.words)), whole, ops.const(0, self.words))


def _across(value: Any, lanes: int, what: str) -> Any:
    """Return the sum, or the maximum, of the lanes of a vector of int32."""
    if lanes == 1:
        return value
    return tir.call_llvm_pure_intrin("int32", f"llvm.vector.reduce.{what}.v{lanes}i32", value)
