"""``ChangeDatatype``: compute a network in another element type, such as one of the user's own.

Before and after ``ChangeDatatype("float32", "custom[posit]32")``::

    fn (%x: Tensor[(3), float32]) {            fn (%x: Tensor[(3), custom[posit]32]) {
      %0 = zeros(shape=[3], dtype="float32");    %0 = zeros(shape=[3], dtype="custom[posit]32");
      add(%x, %0)                                add(%x, %0)
    }                                          }
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.ir.type import FuncType, RefType, TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.expr_functor import ExprMutator
from tilewright.relay.transform.function_pass import function_pass

_DTYPES_OF_RESULTS = ("dtype", "out_dtype")


@function_pass(opt_level=0)
class ChangeDatatype(ExprMutator):
    """Give values of the dtype ``src`` the dtype ``dst``; constants are converted by a cast.

    Args:
        src: the dtype to replace, as ``"float32"``.
        dst: the dtype to put, as ``"custom[posit]32"``.
    """

    def __init__(self, src: str, dst: str) -> None:
        super().__init__()
        self.src, self.dst = src, dst

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        """Return the function with the other dtype."""
        return self.visit(func)

    def visit_constant(self, expr: Constant) -> RelayExpr:
        """Convert when the program runs, or when constants are folded."""
        made: RelayExpr = expr.astype(self.dst) if expr.data.dtype == self.src else expr
        return made

    def visit_var(self, expr: Var) -> RelayExpr:
        """Rebuild when the annotation names the dtype."""
        annotation = expr.type_annotation
        changed = None if annotation is None else self._changed(annotation)
        return expr if changed is annotation else Var(expr.name_hint, changed)

    def visit_call(self, expr: Call) -> RelayExpr:
        """Also replace the dtype that the operator is asked for."""
        made = super().visit_call(expr)
        assert isinstance(made, Call)
        attrs = made.attrs
        fields = {f: self.dst for f in _DTYPES_OF_RESULTS if getattr(attrs, f, None) == self.src}
        if attrs is None or not fields:
            return made
        return Call(made.op, made.args, attrs.replace(**fields), made.type_args, made.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        """Leave the result's type to be inferred, if anything changed."""
        made: Any = super().visit_function(expr)
        return made if made is expr else Function(made.params, made.body, None, made.type_params, made.attrs)

    def _changed(self, annotation: Type) -> Type:
        if isinstance(annotation, TensorType):
            return TensorType(annotation.shape, self.dst) if annotation.dtype == self.src else annotation
        if isinstance(annotation, TupleType):
            fields = [self._changed(field) for field in annotation.fields]
            same = all(a is b for a, b in zip(fields, annotation.fields, strict=True))
            return annotation if same else TupleType(fields)
        if isinstance(annotation, FuncType):
            arguments = [self._changed(t) for t in annotation.arg_types]
            result = self._changed(annotation.ret_type)
            return FuncType(arguments, result, annotation.type_params, annotation.type_constraints)
        if isinstance(annotation, RefType):
            return RefType(self._changed(annotation.value))
        return annotation
