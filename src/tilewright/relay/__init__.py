# ruff: noqa: F401 (names are imported here to be found here)
"""Relay: the graph-level IR, its operators, type inference, passes, text form, front ends and back end.

expr.py adt.py visitor.py   the nodes and walks over them      op/           operators, one declaration each
type_infer/ analysis.py     type inference and analyses        transform/    passes, one a file
text/                       printer and parser                 frontend/     importers of models
backend/ build_module.py    from a module to a library         testing/      networks to test with
qnn/ quantize/              quantized networks                 dataflow_pattern/   patterns of expressions
lets.py loops.py scopes.py data_flow.py call_graph.py annotated_regions.py facts.py   parts of analyses
interpreter.py              every construct, in numpy          scope_builder.py prelude.py tensor_arrays.py   programs
verify.py                   the verifier of modules            collector.py   what passes leave for whoever builds
function_attributes.py options.py budget.py   attributes of functions, options of passes, limits of building
base.py expr_functor.py features.py function.py name_transforms.py ty.py type_functor.py   modules by TVM's names
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.load_on_use import load_on_use
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any
from tilewright.ir.span import SourceName, Span
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeConstraint,
    TypeKind,
    TypeRelation,
    TypeVar,
    scalar_type,
)  # fmt: skip
from tilewright.relay import adt, analysis, expr, op, qnn
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)  # fmt: skip
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    TempExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    const,
    var,
)  # fmt: skip
from tilewright.relay.expr_functor import ExprFunctor, ExprMutator, ExprVisitor
from tilewright.relay.op import *  # noqa: F403
from tilewright.relay.op import annotation, dyn, image, nn, random, vision
from tilewright.relay.type_functor import TypeFunctor, TypeMutator, TypeVisitor
from tilewright.relay.visitor import ExprRewriter, bind

if TYPE_CHECKING:
    from tilewright.relay import backend, build_module, dataflow_pattern, frontend, prelude, testing, text, transform
    from tilewright.relay.backend import vm
    from tilewright.relay.backend.executor import create_executor
    from tilewright.relay.build_module import build, optimize
    from tilewright.relay.prelude import Prelude
    from tilewright.relay.scope_builder import ScopeBuilder
    from tilewright.relay.text.parser import fromtext, parse, parse_expr
    from tilewright.runtime.params import load_param_dict, save_param_dict


__getattr__, __dir__ = load_on_use(
    __name__,
    [
        ".backend", ".backend.vm", ".base", ".build_module", ".data_dep_optimization", ".dataflow_pattern", ".frontend",
        ".function", ".interpreter", ".loops", ".prelude", ".quantize", ".testing", ".text", ".transform", ".ty",
        ".type_infer",
    ],
    {
        ".build_module": ("build", "optimize"),
        ".transform": ("build_config",),
        ".backend.executor": ("create_executor",),
        ".text.parser": ("fromtext", "parse", "parse_expr"),
        ".prelude": ("Prelude",),
        ".scope_builder": ("ScopeBuilder",),
        "tilewright.runtime.params": ("load_param_dict", "save_param_dict"),
    },
)  # fmt: skip


def _standard_library(file_name: str) -> IRModule:
    library: IRModule = importlib.import_module("tilewright.relay.prelude").standard_library(file_name)
    return library


IRModule.standard_library = staticmethod(_standard_library)
importlib.import_module("tilewright.relay.text.printer")  # what str() of types, expressions and modules uses
importlib.import_module("tilewright.relay.backend.contrib")  # the names relay.ext.dnnl and relay.ext.ccompiler
importlib.import_module("tilewright.relay.backend.run_primitive")  # for operators without a meaning in numpy
