"""lookup: a function of integers of 8 bits, as a table of its values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import cast, const
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.tir.layout import Layout
from tilewright.topi import tag

_ENTRIES = 256


class Lookup(OpDef[None]):
    """``table[data]``: the table has an entry for each number of the data's type, int8 or uint8, the least first."""

    name = "lookup"
    inputs = ("data", "table")
    pattern = OpPattern.ELEMWISE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """The shape of the data, the type of the table."""
        found = relations.tensors(types, Lookup.inputs)
        data, table = found
        relations.require(data.dtype in ("int8", "uint8"), f"the data are int8 or uint8, found {data.dtype}")
        shape = tuple(map(relations.known, table.shape))
        relations.require(shape in ((_ENTRIES,), (None,)), f"the table has {_ENTRIES} entries, found the shape {shape}")
        return TensorType(data.shape, table.dtype)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
        data, table = inputs
        least = const(dt.int_range(data.dtype)[0], "int32")

        def entry(*i: PrimExpr) -> PrimExpr:
            return table(tir.byte_index(data(*i)) if data.dtype == "uint8" else cast("int32", data(*i)) - least)

        return [te.compute(data.shape, entry, "lookup", tag.ELEMWISE)]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        data, table = inputs
        return [table[data.astype(np.int64) - np.iinfo(data.dtype).min]]

    @staticmethod
    def infer_correct_layout(
        attrs: None, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> layout_rules.InferCorrectLayoutOutput:
        """Take the data in any layout."""
        chosen = (new_in_layouts or old_in_layouts)[0]
        return layout_rules.InferCorrectLayoutOutput([chosen, layout_rules.UNDEFINED], [chosen], attrs)


lookup = builder(Lookup)
