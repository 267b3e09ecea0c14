"""``te.hybrid.script``, and modules whose functions are hybrid scripts in text form."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import PrimExpr
from tilewright.script.parser import closure_of, definition_of
from tilewright.te.hybrid.printer import print_schedule
from tilewright.te.hybrid.reader import Place, hybrid_op, read_script
from tilewright.te.hybrid.runtime import HYBRID_GLOBALS, SYMBOLS
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import Tensor

_PYTHON = {name: vars(__builtins__)[name] if isinstance(__builtins__, types.ModuleType) else __builtins__[name]
           for name in ("range", "len", "min", "max", "abs", "int", "float", "bool")}  # fmt: skip
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.For, ast.If, ast.Assert, ast.Return, ast.Expr, ast.Pass)
_EXPRESSIONS = (
    ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Call, ast.Constant, ast.Name, ast.Subscript,
    ast.Tuple, ast.List,
)  # fmt: skip


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    return isinstance(value, (Tensor, Place, PrimExpr))


def _call(definition: ast.FunctionDef, names: Mapping[str, Any], arguments: Sequence[Any]) -> Any:
    """Return the operation of a script; inside another script, its statement."""
    if any(isinstance(a, Place) for a in arguments):
        return read_script(definition, names, arguments)[0]
    return hybrid_op(definition, names, arguments)


def script(pyfunc: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a Python function of loops into an operation.

    Called with tensors and scalar expressions, it returns the tensors that it computes; with numpy arrays and numbers
    it runs in Python, and returns arrays.

    Args:
        pyfunc: loops over ``range``, ``parallel``, ``vectorize``, ``unroll``, ``const_range`` and ``bind``,
            assignments, ``if``, ``assert``, calls of the functions in ``te/hybrid/runtime.py`` and of other scripts.

    Raises:
        TilewrightError: when called, if the function is not such a program; the message names the line.
    """

    @functools.wraps(pyfunc)
    def run(*args: Any) -> Any:
        around = {**pyfunc.__globals__, **closure_of(pyfunc)}
        if any(map(_is_symbolic, args)):
            return _call(definition_of(pyfunc), around, args)
        names = {**pyfunc.__globals__, **HYBRID_GLOBALS}
        function = types.FunctionType(pyfunc.__code__, names, pyfunc.__name__, None, pyfunc.__closure__)
        return function(*args)

    return run


def source_to_op(
    src: str | ast.FunctionDef, args: Sequence[Any], symbols: Mapping[str, Any], closure_vars: Mapping[str, Any]
) -> Any:
    """Return the tensors that the script ``src`` computes from ``args``; the mappings hold the surrounding names."""
    definition = ast.parse(src).body[0] if isinstance(src, str) else src
    assert isinstance(definition, ast.FunctionDef)
    return hybrid_op(definition, {**symbols, **closure_vars}, args)


class HybridModule:
    """A hybrid script as text, which can be saved, loaded and called.

    Loading accepts scripts only: a file with any other statement, name or attribute is refused.

    Args:
        src: the text, or None to ``load`` it later.
        name: the function's name.
    """

    def __init__(self, src: str | None = None, name: str | None = None) -> None:
        self.src, self.name = "", name
        self._definition: ast.FunctionDef | None = None
        if src is not None:
            self._take(src)

    def _take(self, source: str) -> None:
        self._definition = _checked(source)
        self.src, self.name = source, self._definition.name

    def get_source(self) -> str:
        """Return the text."""
        return self.src

    def save(self, path: str | Path) -> None:
        """Write the text to a file, appending ``.py`` if the name lacks it."""
        target = Path(path)
        (target if target.suffix == ".py" else Path(f"{target}.py")).write_text(self.src, "utf-8")

    def load(self, path: str | Path) -> None:
        """Read a file.

        Raises:
            TilewrightError: it is not a script.
        """
        self._take(Path(path).read_text("utf-8"))

    def __call__(self, *args: Any) -> Any:
        if self._definition is None:
            raise TilewrightError("the module is empty; load a file first")
        if any(map(_is_symbolic, args)):
            return _call(self._definition, {}, args)
        names: dict[str, Any] = {"__builtins__": {}, **_PYTHON, **HYBRID_GLOBALS}
        tree = ast.Module([self._definition], [])
        exec(compile(ast.fix_missing_locations(tree), f"<{self.name}>", "exec"), names)
        return names[self._definition.name](*args)


def _checked(source: str) -> ast.FunctionDef:
    """Return the function of a text; raises TilewrightError for any text that could do more than compute tensors."""
    body = [s for s in ast.parse(source).body if not isinstance(s, (ast.Import, ast.ImportFrom))]
    definition = body[0] if body else None
    if len(body) != 1 or not isinstance(definition, ast.FunctionDef):
        raise TilewrightError("a hybrid script is a file with one function")
    plain = [ast.arg(arg.arg) for arg in definition.args.args]
    definition.args = ast.arguments(posonlyargs=[], args=plain, kwonlyargs=[], kw_defaults=[], defaults=[])
    definition.decorator_list, definition.returns = [], None
    known = {*SYMBOLS, *(arg.arg for arg in definition.args.args)}
    nodes = [n for statement in definition.body for n in ast.walk(statement)]
    known |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        line = f"line {getattr(node, 'lineno', '?')} of {definition.name}"
        if isinstance(node, ast.Attribute):
            if node.attr not in ("shape", "dtype"):
                raise TilewrightError(f"{line}: a tensor has shape and dtype, not {node.attr}")
        elif isinstance(node, ast.Name):
            if node.id not in known or node.id.startswith("__"):
                raise TilewrightError(f"{line}: {node.id} is not known; a saved script uses nothing from outside")
        elif isinstance(node, (ast.stmt, ast.expr)) and not isinstance(node, _STATEMENTS + _EXPRESSIONS):
            raise TilewrightError(f"{line}: {type(node).__name__} has no meaning in a hybrid script")
    return definition


def build(sch: Schedule, inputs: Sequence[Any], outputs: Sequence[Tensor], name: str = "hybrid_func") -> HybridModule:
    """Convert the loops of a schedule to a hybrid script.

    Args:
        sch: the schedule.
        inputs: tensors and variables that are the function's parameters.
        outputs: the tensors that the function returns.
        name: the function's name.
    """
    return HybridModule(print_schedule(sch, inputs, outputs, name), name)
