"""A product with block-quantized weights in the making: where its operands are, and what all of its loops do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm
from tilewright.target.features import features
from tilewright.topi.cpu.byte_products import ByteProduct
from tilewright.topi.cpu.byte_products import byte_product as best_form
from tilewright.topi.cpu.common import machine, measured
from tilewright.topi.nn.nbits import WORD_BITS
from tilewright.topi.utils import get_const_tuple

INT8 = 4  # the accuracy level at which data may be rounded to int8
GROUP = 4  # bytes of a word
_MOST_BLOCK = 1 << 16  # whose products with int8 sum up in int32
CHUNK_BYTES = 1 << 19  # of rows that all panels are multiplied with before others
_SECOND_LEVEL = 2  # of prefetches: the cache that they fill


def nbits_form(bits: int, level: int, block: int) -> ByteProduct | None:
    """Return how the current target multiplies codes with int8; None: products are of float32."""
    if level != INT8 or block > _MOST_BLOCK:
        return None
    form = best_form("uint8", "int8", small_weights=bits < 8)
    if form.name == "madd":
        signs = form.lanes * 32 <= 256 and features().has("ssse3")
        form = ByteProduct("signs" if signs else "halves", "uint8", "int8", form.lanes, GROUP)
    takes = form.group == GROUP and form.weight_dtype == "int8"
    return form if form.is_fast and takes and (form.data_dtype == "uint8" or bits < 8) else None


def nbits_lanes(bits: int, level: int, block: int) -> int:
    """Return how many columns weights are packed for, side by side, for the current target."""
    form = nbits_form(bits, level, block)
    return form.lanes if form is not None else max(4, features().lanes(32))


@dataclass
class Kernel:
    """The product in the making: where its operands are, and their extents."""

    ib: Any
    data: Any
    codes: Any
    scales: Any
    zeros: Any
    out: Any
    bits: int
    block: int
    form: ByteProduct | None

    def __post_init__(self) -> None:
        self.rows, self.size = self.data.shape
        self.panels, self.blocks, self.words, self.lanes = get_const_tuple(self.codes.shape)
        self.depth = self.words * WORD_BITS // self.bits  # of a block as packed
        self.width = self.blocks * self.depth  # of a row as packed
        self.units = get_const_tuple(self.out.shape[1:])[0]

    def vector(self, dtype: str) -> str:
        """Return the type of a vector of ``dtype``."""
        return f"{dtype}x{self.lanes}"

    def words_at(self, panel: Any, block: Any, word: Any) -> Any:
        """Return a vector of words."""
        return self.codes.vload([panel, block, word, 0], self.vector("int32"))

    def fetch_ahead(self, buffer: Any, at: Any) -> None:
        """Fetch what a row reads some time after the element ``at`` of the codes, or of the scales.

        Panels are short, and processors stop fetching by themselves where streams cross pages.
        """
        words_ahead = machine().processor.memory.code_bytes_ahead // GROUP
        if not words_ahead:
            return
        ahead = words_ahead if buffer is self.codes else -(-words_ahead // self.words)
        address = buffer.access_ptr("r", offset=at + ahead)
        self.ib.emit(tir.Evaluate(tir.Call("handle", "tir.prefetch", (address, 0, _SECOND_LEVEL, 1))))

    def scale_at(self, panel: Any, block: Any) -> Any:
        """Return the scales of a block of all columns of a panel."""
        return ops.cast(self.vector("float32"), self.scales.vload([panel, block, 0], self.vector(self.scales.dtype)))

    def zero_at(self, panel: Any, block: Any) -> Any:
        """Return the zero points of a block, in float32."""
        given = self.zeros.vload([panel, block, 0], self.vector(self.zeros.dtype))
        return ops.cast(self.vector("float32"), given)

    def local(self, dtype: str, count: int, name: str) -> Any:
        """Return ``count`` vectors that stay in registers, of zeros."""
        made = self.registers(self.vector(dtype), count, name)
        for i in range(count):
            made[i] = ops.const(0, self.vector(dtype))
        return made

    def registers(self, vector: str, count: int, name: str) -> Any:
        """Return ``count`` vectors that stay in registers."""
        return self.ib.allocate(vector, (count,), name=name, scope="local")

    def value(self, row: Any, block: Any, place: Any) -> Any:
        """Return a number of a block of a row; 0 behind the block's, and the row's, end."""
        column = block * self.block + place
        inside = ops.logical_and(place < self.block, column < self.size)
        return tir.if_then_else(inside, self.data.vload([row, column], "float32"), ops.const(0.0, "float32"))

    def kind(self) -> str:
        """Return the kind of the loop over panels."""
        work = self.units * self.blocks * self.block
        return "parallel" if self.panels > 1 and work > measured().threads.least_row_products else "serial"

    def tiles(self, most: int) -> tuple[Any, Any]:
        """Return the number of whole groups of rows, and how many rows are left: an int where it is known."""
        if isinstance(self.rows, IntImm):
            return ops.const(int(self.rows) // most, "int32"), int(self.rows) % most
        return ops.floordiv(self.rows, most), ops.floormod(self.rows, most)

    def is_padded(self) -> bool:
        """Return whether rows as packed are longer than the data's, or of a length that is not known."""
        return not isinstance(self.size, IntImm) or int(self.size) != self.width

    def store(self, panel: Any, row: Any, value: Any) -> None:
        """Store a row of a panel; the last one may have fewer columns."""
        value = ops.cast(self.vector(self.out.dtype), value)
        rest = self.units % self.lanes
        if not rest:
            self.ib.emit(self.out.vstore([row, panel * self.lanes], value))
            return
        with self.ib.if_scope(panel < self.panels - 1):
            self.ib.emit(self.out.vstore([row, panel * self.lanes], value))
        with self.ib.else_scope():
            last = self.registers(self.vector(self.out.dtype), 1, "last")
            last[0] = value
            for column in range(rest):
                element = tir.Load(self.out.dtype, last.asobject(), ops.const(column))
                self.ib.emit(self.out.vstore([row, panel * self.lanes + column], element))
