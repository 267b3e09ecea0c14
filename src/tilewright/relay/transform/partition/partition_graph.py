"""PartitionGraph: make a global function of each region that is marked for an external compiler.

Before::

    def @main(%x: Tensor[(2), float32]) {
      %0 = annotation.compiler_begin(%x, compiler="my");
      %1 = nn.relu(%0);
      %2 = annotation.compiler_end(%1, compiler="my");
      exp(%2)
    }

after::

    def @main(%x: Tensor[(2), float32]) {
      %0 = @tvmgen_default_my_main_0(%x);
      exp(%0)
    }

    def @tvmgen_default_my_main_0(%my_0_i0: Tensor[(2), float32], Inline=1, Compiler="my",
                                  global_symbol="tvmgen_default_my_main_0", Primitive=1) {
      nn.relu(%my_0_i0)
    }
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import TupleType, Type
from tilewright.relay.annotated_regions import AnnotatedRegion, AnnotatedRegionSet
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import COMPILER, GLOBAL_SYMBOL, INLINE, PRIMITIVE
from tilewright.relay.name_transforms import mangle_module_name, sanitize_name
from tilewright.relay.op.annotation import compiler_end
from tilewright.relay.transform.common import call_of, open_children
from tilewright.relay.transform.partition.annotate_target import BEGIN, DEFAULT, END, compiler_of
from tilewright.relay.transform.partition.merge_compiler_regions import region_in_a_circle, regions_of
from tilewright.relay.type_infer import infer_expr, infer_module
from tilewright.relay.visitor import ExprMutator, bind, is_closed, post_order, substitute
from tilewright.runtime.registry import get_global_func


class _OpenMutator(ExprMutator):
    """Mutator that skips functions which already have a compiler."""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_function(self, expr: Function) -> RelayExpr:
        return expr if is_closed(expr) else super().visit_function(expr)


class _Flattener(_OpenMutator):
    """Move end marks from tuples to their fields: ``end((a, b))`` is ``(end(a), end(b))``."""

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        end = call_of(post, END)
        if end and isinstance(end.args[0], Tuple):
            return Tuple([compiler_end(f, compiler_of(end)) for f in end.args[0].fields], end.args[0].span)
        return post


class _DefaultRemover(_OpenMutator):
    """Remove marks of the default compiler."""

    def visit_call(self, expr: Call) -> RelayExpr:
        mark = call_of(expr, BEGIN) or call_of(expr, END)
        if mark and compiler_of(mark) == DEFAULT:
            return self.visit(mark.args[0])
        return super().visit_call(expr)


class RegionCost(NamedTuple):
    """Seconds of a region in the external code, on the host, and for transfers of its inputs and outputs."""

    external: float
    host: float
    transfers: float = 0.0

    @property
    def pays(self) -> bool:
        """Return whether the external code is faster, including transfers."""
        return self.external + self.transfers < self.host


CostModel = Callable[[Function], RegionCost]


@dataclass
class PartitionOptions:
    """Parameters of ``PartitionGraph``."""

    mod_name: str = "default"
    bind_constants: bool = True
    cost: CostModel | None = None


@dataclass
class _Outline:
    """A region on its way to a function: its inputs, and the replacements of its results."""

    params: list[Var] = field(default_factory=list)
    args: list[RelayExpr] = field(default_factory=list)
    param_of: dict[RelayExpr, Var] = field(default_factory=dict)
    result_of: dict[RelayExpr, RelayExpr] = field(default_factory=dict)


class _Partitioner(_OpenMutator):
    """Replace the regions of one function by calls; ``functions`` has the callees."""

    def __init__(self, regions: AnnotatedRegionSet, mod: IRModule, options: PartitionOptions) -> None:
        super().__init__()
        self.regions = regions
        self.mod = mod
        self.options = options
        self.functions: dict[GlobalVar, Function] = {}
        self.outlines: dict[AnnotatedRegion, _Outline] = {}
        self.inputs = {begin: index for region in regions for index, begin in enumerate(region.args)}
        self.outputs = {region: _once([end.args[0] for end in region.rets]) for region in regions}

    def _region(self, expr: RelayExpr) -> AnnotatedRegion:
        region = self.regions.get_region(expr)
        assert region is not None
        return region

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Visit all results of a region before the first is replaced."""
        if self.regions.is_end(expr):
            assert isinstance(expr, Call)
            return _once([expr.args[0], *self.outputs[self._region(expr)]])
        return super().children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        if self.regions.is_begin(expr):
            return self._enter(expr)
        if self.regions.is_end(expr):
            return self._leave(expr)
        return super().visit_call(expr)

    def _enter(self, begin: Call) -> RelayExpr:
        region = self._region(begin)
        if not self.outputs[region]:  # nothing leaves it: no work is marked
            return self.visit(begin.args[0])
        outline = self.outlines.setdefault(region, _Outline())
        source = begin.args[0]
        while mark := call_of(source, BEGIN) or call_of(source, END):
            source = mark.args[0]
        if source not in outline.param_of:
            param = Var(f"{region.target}_{region.id}_i{self.inputs[begin]}", begin.checked_type)
            outline.param_of[source] = param
            outline.params.append(param)
            outline.args.append(self.visit(begin.args[0]))
        return outline.param_of[source]

    def _leave(self, end: Call) -> RelayExpr:
        region = self._region(end)
        outline = self.outlines.setdefault(region, _Outline())
        if not outline.result_of:
            outline.result_of = self._outline(region, outline)
        return outline.result_of[end.args[0]]

    def _outline(self, region: AnnotatedRegion, outline: _Outline) -> dict[RelayExpr, RelayExpr]:
        """Make the region's function; return the replacement of each result. Several results make one flat tuple."""
        outputs = self.outputs[region]
        if len(outputs) == 1:
            return {outputs[0]: self._call(region, outline, self.visit(outputs[0]), outputs[0].checked_type)}
        fields = [field for out in outputs for field in _fields(self.visit(out), out.checked_type)]
        body = Tuple([value for value, _ in fields])
        call = self._call(region, outline, body, TupleType([type_ for _, type_ in fields]))
        numbers = itertools.count()
        return {out: _gathered(call, out.checked_type, numbers) for out in outputs}

    def _call(self, region: AnnotatedRegion, outline: _Outline, body: RelayExpr, type_: Type) -> RelayExpr:
        """Return the call of a new function, or ``body`` itself where the function would not pay."""
        func, args = self._bound(Function(outline.params, body, type_), outline)
        name = self._name(region)
        marks = {INLINE.key: 1, COMPILER.key: region.target, GLOBAL_SYMBOL.key: name, PRIMITIVE.key: 1}
        if not self._pays(func.replace(attrs=marks)):
            return substitute(body, dict(zip(outline.params, outline.args, strict=True)))
        var = GlobalVar(name)
        self.functions[var] = _optimized(func, region.target).replace(attrs=marks)
        return Call(var, args)

    def _pays(self, func: Function) -> bool:
        """Return whether the function of a region pays by the cost model."""
        if self.options.cost is None:
            return True
        cost = self.options.cost(infer_expr(func, self.mod))  # type: ignore[arg-type]
        if not isinstance(cost, RegionCost):
            raise TilewrightError(
                f"the cost of @{GLOBAL_SYMBOL.of(func)} is a {type(cost).__name__}; the cost model returns a "
                "RegionCost(external, host, transfers), in seconds"
            )
        return cost.pays

    def _bound(self, func: Function, outline: _Outline) -> tuple[Function, list[RelayExpr]]:
        """Return the function with its constant arguments inside, and the remaining arguments."""
        pairs = list(zip(outline.params, outline.args, strict=True))
        constants = {param: arg for param, arg in pairs if self.options.bind_constants and _is_constant(arg)}
        bound = bind(func, constants) if constants else func
        assert isinstance(bound, Function)
        return bound, [arg for param, arg in pairs if param not in constants]

    def _name(self, region: AnnotatedRegion) -> str:
        prefix = mangle_module_name(self.options.mod_name)
        name = sanitize_name(f"{prefix}_{region.target}_{region.func_name}_{region.id}")
        while name in self.mod:  # a run before this one has made regions too
            name += "_"
        return name


def _fields(value: RelayExpr, type_: Type) -> list[tuple[RelayExpr, Type]]:
    """Return the values in a value, tuples flattened, and their types."""
    if not isinstance(type_, TupleType):
        return [(value, type_)]
    parts = [value.fields[i] if isinstance(value, Tuple) else TupleGetItem(value, i) for i in range(len(type_.fields))]
    return [field for part, inner in zip(parts, type_.fields, strict=True) for field in _fields(part, inner)]


def _gathered(value: RelayExpr, type_: Type, numbers: Iterator[int]) -> RelayExpr:
    """Return an expression of ``type_`` from the next fields of the tuple ``value``."""
    if isinstance(type_, TupleType):
        return Tuple([_gathered(value, inner, numbers) for inner in type_.fields])
    index = next(numbers)
    return value.fields[index] if isinstance(value, Tuple) else TupleGetItem(value, index)


def _once(exprs: Sequence[RelayExpr]) -> list[RelayExpr]:
    return list(dict.fromkeys(exprs))


def _is_constant(expr: RelayExpr) -> bool:
    return isinstance(expr, Constant) or (
        isinstance(expr, Tuple) and all(isinstance(field, Constant) for field in expr.fields)
    )


def _optimized(func: Function, compiler: str) -> Function:
    """Apply ``relay.ext.COMPILER.optimize``, if there is one, to a region's function."""
    name = f"relay.ext.{compiler}.optimize"
    optimize = get_global_func(name, allow_missing=True)
    if optimize is None:
        return func
    result = optimize(infer_module(IRModule.from_expr(func)))
    if not isinstance(result, IRModule) or "main" not in result:
        raise TilewrightError(f"{name} returned a {type(result).__name__}; expected the module, with the function main")
    optimized: Function = infer_module(result)["main"]
    return optimized


def _check_order(func: Function, regions: AnnotatedRegionSet) -> None:
    """Raise TilewrightError where a region depends on its own results, and so cannot be one function."""
    region = region_in_a_circle(func, regions)
    if region is not None:
        raise TilewrightError(
            f"region {region.id} for the compiler {region.target!r} needs what others make of its own results, so "
            "that it cannot be one function; begin another region behind them (MergeCompilerRegions keeps to that)"
        )


def PartitionGraph(mod_name: str = "default", bind_constants: bool = True, cost: CostModel | None = None) -> Pass:
    """Make global functions of the regions that ``AnnotateTarget`` marked.

    ``relay.ext.COMPILER.optimize``, a global function from module to module, is applied to each.

    Parameters
    ----------
    mod_name : the functions' names begin with ``tvmgen_MOD_NAME_COMPILER_FUNCTION_`` and end with the region's number
    bind_constants : whether constants that enter a region move into its function
    cost : returns the ``RegionCost`` of a region's function, which is typed and has its attributes (``Compiler``,
        ``global_symbol``); regions that do not pay stay where they are
    """
    options = PartitionOptions(mod_name, bind_constants, cost)

    def partition(mod: IRModule, ctx: PassContext) -> IRModule:
        result = infer_module(mod).copy()
        marked = [v for v, f in result.items() if isinstance(f, Function) and not is_closed(f) and _has_marks(f)]
        for var in marked:
            result[var] = without_default_marks(result[var])
        result = infer_module(result).copy()
        for var in marked:
            func: Function = result[var]
            regions = regions_of(func, var.name_hint)
            _check_order(func, regions)
            partitioner = _Partitioner(regions, result, options)
            result[var] = func.replace(body=partitioner.visit(func.body))
            for name, outlined in partitioner.functions.items():
                result[name] = outlined
        return infer_module(result)

    return ModulePass(partition, PassInfo(0, "PartitionGraph"))


def without_default_marks(func: Function) -> RelayExpr:
    """Return a marked function as its regions are numbered: without default marks, and with marks of tuples on
    their fields.
    """
    return _DefaultRemover().visit(_Flattener().visit(func))


def _has_marks(func: Function) -> bool:
    return any(call_of(node, BEGIN) or call_of(node, END) for node in post_order(func, open_children))
