"""Memory planned by named dimensions: results of kernels whose sizes are products of the same names share a region.

    x: (batch, seq, 768) float32         3072 x batch x seq bytes
    y: (batch * seq, 3072) float32      12288 x batch x seq
    z: (batch, 768) float32              3072 x batch

Tensors of one product are placed as MemoryPlan places those of known sizes, in units of the product: tensors that live
at the same time do not overlap, whatever the names are. A tensor of fewer names, the others being 1 at least, is no
larger than one of as many units, and goes into a gap of the region if there is one. The machine computes sizes and
offsets once a run (``tilewright.vm.sizes``). On other devices each result has its own memory: kernels there take no
offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import DimVar, IntImm, Mul, PrimExpr
from tilewright.ir.type import TensorType, tensors_of
from tilewright.relay.backend.target_map import CPU
from tilewright.relay.backend.vm_memory import dtype_fields
from tilewright.relay.expr import Call, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.views import ALIGNMENT
from tilewright.relay.transform.common import open_children
from tilewright.relay.transform.memory.plan_memory import Life, place
from tilewright.relay.visitor import post_order
from tilewright.runtime.bytecode import SIZES, Opcode
from tilewright.runtime.ndarray import array

if TYPE_CHECKING:
    from tilewright.relay.backend.vm_codegen import FunctionCompiler

Product = tuple[DimVar, ...]
Places = Mapping[DimVar, tuple[int, int]]
"""The number of a parameter and its axis that tell what a name means."""

Placed = Mapping[Call, Sequence[tuple[int, int] | None]]
"""For each result of a call its region and offset, as registers; None where it has memory of its own."""


@dataclass(eq=False)
class Region:
    """Memory of ``units`` times the product of the named dimensions ``product``, in bytes."""

    product: Product
    lives: list[Life] = field(default_factory=list)

    @property
    def units(self) -> int:
        """Return the bytes for each unit of the product."""
        return max(life.offset + life.nbytes for life in self.lives)


@dataclass(frozen=True)
class Plan:
    """Regions, and for each call of a kernel the places of its results; None for a result with its own memory."""

    regions: Sequence[Region]
    results: Mapping[Call, Sequence[tuple[Region, Life] | None]]

    def sizes(self) -> list[tuple[int, Product]]:
        """Return the numbers that the machine computes: sizes of regions, and offsets other than 0."""
        found = [(region.units, region.product) for region in self.regions]
        found += [(life.offset, region.product) for region in self.regions for life in region.lives if life.offset]
        return list(dict.fromkeys(found))


def rows_of(sizes: Sequence[tuple[int, Product]], places: Places) -> np.ndarray:
    """Return sizes as ``tilewright.vm.sizes`` takes them: a number, and pairs of an input and an axis (-1: none)."""
    width = max(len(product) for _, product in sizes)
    pairs = [[i for name in product for i in places[name]] for _, product in sizes]
    return np.array(
        [[units, *row, *[-1] * (2 * width - len(row))] for (units, _), row in zip(sizes, pairs, strict=True)], "int64"
    )


def plan_of(
    expr: RelayExpr, names: Places, device_of: Callable[[Call], int | None], moves: Callable[[Call], bool]
) -> Plan:
    """Plan the memory of the results of kernels that a chain of lets calls.

    Parameters
    ----------
    names : the names that may be in products
    device_of : the device of the called kernel; None for a call of anything else
    moves : whether a call of a kernel only reshapes its first argument
    """
    lives: dict[Call, list[_Piece]] = {}
    owners: dict[Var, list[_Piece]] = {}
    step = 0
    while isinstance(expr, Let):
        value, step = expr.value, step + 1
        if isinstance(value, Call) and (device := device_of(value)) is not None:
            used = [piece for arg in value.args for piece in owners.get(arg, ())]  # type: ignore[call-overload]
            for piece in used:
                piece.life.last = step
            if moves(value):
                owners[expr.var] = owners.get(value.args[0], [])  # type: ignore[call-overload]
            else:
                lives[value] = owners[expr.var] = _pieces(value, device, names, step)
        elif isinstance(value, (Tuple, TupleGetItem)):
            owners[expr.var] = _pieces_in(value, owners)
        else:
            _escape(value, owners)
        expr = expr.body
    _escape(expr, owners)
    return _planned(lives)


def emit_regions(compiler: FunctionCompiler, body: RelayExpr, params: Sequence[Var]) -> Placed:
    """Allocate the regions of a function; return for each call of a kernel the registers of its results' places."""
    tensors = [p for p in params if isinstance(p.checked_type, TensorType)]
    places: dict[DimVar, tuple[int, int]] = {}
    for index, param in enumerate(tensors):
        for axis, dim in enumerate(param.checked_type.shape):  # type: ignore[attr-defined]
            if isinstance(dim, DimVar):
                places.setdefault(dim, (index, axis))
    plan = plan_of(body, places, compiler.device_of_call, compiler.moves_nothing)
    if not plan.regions:
        return {}
    sizes = plan.sizes()
    rows = compiler.constant(array(rows_of(sizes, places)), CPU)
    made = {size: compiler.tensor(TensorType((), "int64"), CPU) for size in sizes}
    registers = [rows, *(compiler.vars[param] for param in tensors), *made.values()]
    index = compiler.program.packed_index(SIZES)
    compiler.emit(Opcode.INVOKE_PACKED, index, len(registers), len(sizes), *registers)
    storages = {}
    for region in plan.regions:
        storages[region] = compiler.new()
        size = made[region.units, region.product]
        compiler.emit(Opcode.ALLOC_STORAGE, size, ALIGNMENT, *dtype_fields("uint8"), CPU, storages[region])
    start = compiler.integer(0)
    compiler.release(rows)

    def registers_of(home: tuple[Region, Life] | None) -> tuple[int, int] | None:
        if home is None:
            return None
        region, life = home
        return storages[region], made[life.offset, region.product] if life.offset else start

    return {call: [registers_of(home) for home in homes] for call, homes in plan.results.items()}


@dataclass(eq=False)
class _Piece:
    """The memory of a result; without a product if its size is no product of names."""

    life: Life
    product: Product | None
    device: int
    escapes: bool = False


def _pieces(call: Call, device: int, names: Places, step: int) -> list[_Piece]:
    found = []
    for tensor in tensors_of(call.checked_type):
        units, product = _units(tensor, names)
        found.append(_Piece(Life(step, units, step), product, device))
    return found


def _pieces_in(value: RelayExpr, owners: Mapping[Var, list[_Piece]]) -> list[_Piece]:
    variables = [e for e in post_order(value, open_children) if isinstance(e, Var)]
    return [piece for var in variables for piece in owners.get(var, ())]


def _escape(value: RelayExpr, owners: Mapping[Var, list[_Piece]]) -> None:
    for piece in _pieces_in(value, owners):
        piece.escapes = True


def _units(tensor: TensorType, names: Places) -> tuple[int, Product | None]:
    """Return the size of a tensor as a number of bytes, rounded up, times a product of names."""
    units, product = dt.nbytes(tensor.dtype), []
    stack: list[PrimExpr] = list(tensor.shape)
    while stack:
        match stack.pop():
            case IntImm(value=value):
                units *= int(value)
            case Mul(a=a, b=b):
                stack += [a, b]
            case DimVar() as name if name in names:
                product.append(name)
            case _:
                return 0, None
    return -(-units // ALIGNMENT) * ALIGNMENT, tuple(sorted(product, key=lambda name: names[name])) or None


def _planned(lives: Mapping[Call, list[_Piece]]) -> Plan:
    groups: dict[Product, list[_Piece]] = {}
    for piece in (piece for pieces in lives.values() for piece in pieces):
        if piece.product is not None and piece.device == CPU and not piece.escapes:
            groups.setdefault(piece.product, []).append(piece)
    regions: list[Region] = []
    homes: dict[_Piece, Region] = {}
    for product, group in sorted(groups.items(), key=lambda item: -len(item[0])):
        left = [piece for piece in group if not _lodged(piece, regions, homes)]
        if len(left) > 1:
            regions.append(Region(product, [piece.life for piece in left]))
            place(regions[-1].lives, ALIGNMENT)
            homes |= dict.fromkeys(left, regions[-1])
    results = {
        call: [(homes[piece], piece.life) if piece in homes else None for piece in pieces]
        for call, pieces in lives.items()
        if any(piece in homes for piece in pieces)
    }
    return Plan(regions, results)


def _lodged(piece: _Piece, regions: Sequence[Region], homes: dict[_Piece, Region]) -> bool:
    """Put a piece into a gap of a region that has more names, if there is one."""
    assert piece.product is not None
    for region in regions:
        more = Counter(region.product) - Counter(piece.product)
        fits = not Counter(piece.product) - Counter(region.product) and all(name.low >= 1 for name in more)
        if fits:
            units = region.units
            place([piece.life], ALIGNMENT, region.lives)
            if piece.life.offset + piece.life.nbytes <= units:
                region.lives.append(piece.life)
                homes[piece] = region
                return True
            piece.life.offset = 0
    return False
