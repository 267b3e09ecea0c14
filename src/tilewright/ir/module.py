"""``IRModule``: the functions and data types of a program, by name.

Modules flow between passes. A pass copies the module (``copy``) and changes the copy; the functions in it are
immutable. Text form, printing and parsing are in ``tilewright.relay.text`` and ``tilewright.tir.printer``.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Mapping
from typing import Any, ClassVar

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.container import Map
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.notebook import text_html
from tilewright.ir.type import GlobalTypeVar


class IRModule:
    """Functions by ``GlobalVar`` and type definitions by ``GlobalTypeVar``, in insertion order."""

    to_text: ClassVar[Callable[..., str]]  # set by relay.text.printer
    expr_to_function: ClassVar[Callable[[Any], BaseFunc]]  # set by relay.analysis
    standard_library: ClassVar[Callable[[str], IRModule]]  # set by relay, which has it

    def __init__(
        self,
        functions: Mapping[GlobalVar, BaseFunc] | None = None,
        type_definitions: Mapping[GlobalTypeVar, Any] | None = None,
        attrs: DictAttrs | Mapping[str, Any] | None = None,
    ) -> None:
        self.functions: dict[GlobalVar, BaseFunc] = Map()
        self.type_definitions: dict[GlobalTypeVar, Any] = Map()
        self.attrs = attrs if isinstance(attrs, DictAttrs) else DictAttrs(attrs)
        self._global_vars: dict[str, GlobalVar] = {}
        self._global_type_vars: dict[str, GlobalTypeVar] = {}
        self.type_suppliers: list[Callable[[str], None]] = []  # called with the name of a type that is asked for
        for type_var, data in (type_definitions or {}).items():
            self.add_type(type_var, data)
        for var, func in (functions or {}).items():
            self[var] = func

    def same_as(self, other: object) -> bool:
        """Return whether ``other`` is this very module."""
        return self is other

    @staticmethod
    def from_expr(
        expr: RelayExpr,
        functions: Mapping[GlobalVar, BaseFunc] | None = None,
        type_defs: Mapping[GlobalTypeVar, Any] | None = None,
    ) -> IRModule:
        """Module whose ``main`` is ``expr``; free variables of an expression that is no function become parameters."""
        mod = IRModule(functions, type_defs)
        func = expr if isinstance(expr, BaseFunc) else IRModule.expr_to_function(expr)
        name = GLOBAL_SYMBOL.get(func, "main")
        mod[mod.ensure_global_var(str(name))] = func
        return mod

    def structure(self) -> dict[str, Any]:
        """The parts that structural equality compares: attributes, and definitions and functions by name."""
        types = {v.name_hint: data for v, data in self.type_definitions.items()}
        return {
            "attrs": self.attrs,
            "type_definitions": types,
            "functions": {v.name_hint: func for v, func in self.functions.items()},
        }

    def copy(self) -> IRModule:
        """Shallow copy: changing the copy's tables leaves this module as it is."""
        return IRModule(self.functions, self.type_definitions, self.attrs)

    def with_attr(self, key: str, value: Any) -> IRModule:
        """Copy with one module attribute set."""
        mod = self.copy()
        mod.attrs = DictAttrs({**self.attrs, key: value})
        return mod

    def ensure_global_var(self, name: str) -> GlobalVar:
        """Return the global variable ``name``, creating it if there is none."""
        return self._global_vars.get(name) or GlobalVar(name)

    def get_global_var(self, name: str) -> GlobalVar:
        """Return the global variable ``name``; raises TilewrightError with the known names."""
        if name not in self._global_vars:
            known = ", ".join(sorted(self._global_vars)) or "no functions"
            raise TilewrightError(f"the module has no function {name!r}; it has {known}")
        return self._global_vars[name]

    def get_global_vars(self) -> list[GlobalVar]:
        """All global variables, in insertion order."""
        return list(self.functions)

    def get_global_type_vars(self) -> list[GlobalTypeVar]:
        """All names of data types, in insertion order."""
        return list(self.type_definitions)

    def contains_global_var(self, name: str) -> bool:
        """Return whether a function of that name is defined."""
        return name in self._global_vars

    def __contains__(self, var: GlobalVar | str) -> bool:
        return self.contains_global_var(var if isinstance(var, str) else var.name_hint)

    def __getitem__(self, var: GlobalVar | str | GlobalTypeVar) -> Any:
        if isinstance(var, GlobalTypeVar):
            return self.type_definitions[self.get_global_type_var(var.name_hint)]
        return self.functions[self.get_global_var(var if isinstance(var, str) else var.name_hint)]

    def __setitem__(self, var: GlobalVar | str | GlobalTypeVar, value: Any) -> None:
        if isinstance(var, GlobalTypeVar):
            self.add_type(var, value)
            return
        if isinstance(var, str):
            var = self.ensure_global_var(var)
        known = self._global_vars.get(var.name_hint)
        if known is not None and known is not var:
            del self.functions[known]
        self._global_vars[var.name_hint] = var
        self.functions[var] = value if isinstance(value, BaseFunc) else IRModule.expr_to_function(value)

    def __delitem__(self, var: GlobalVar | str) -> None:
        known = self.get_global_var(var if isinstance(var, str) else var.name_hint)
        del self.functions[known], self._global_vars[known.name_hint]

    def __len__(self) -> int:
        return len(self.functions)

    def items(self) -> ItemsView[GlobalVar, BaseFunc]:
        """Return (global variable, function) pairs."""
        return self.functions.items()

    def functions_items(self) -> ItemsView[GlobalVar, BaseFunc]:
        """TVM's second name of ``items``."""
        return self.functions.items()

    def _move(self) -> IRModule:
        """Return the module itself: in TVM, a hint that nobody else needs it."""
        return self

    def update(self, other: IRModule | Mapping[GlobalVar, BaseFunc]) -> None:
        """Add every function and type of ``other``, replacing those of the same name."""
        if isinstance(other, IRModule):
            for type_var, data in other.type_definitions.items():
                self.add_type(type_var, data)
        for var, func in other.items():
            self[var] = func

    def import_from_std(self, file_to_import: str) -> None:
        """Import the definitions of a part of Relay's library, by TVM's file names (see ``relay.prelude``).

        Raises:
            ValueError: there is no such part.
        """
        self.update(IRModule.standard_library(file_to_import))

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        """Replace the function of ``var``."""
        self[var] = func

    def add_type(self, var: GlobalTypeVar, data: Any) -> None:
        """Define an algebraic data type."""
        self._global_type_vars[var.name_hint] = var
        self.type_definitions[var] = data

    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        """Return the name of a defined data type; raises TilewrightError when there is none."""
        if name not in self._global_type_vars:
            for supply in self.type_suppliers:
                supply(name)
        if name not in self._global_type_vars:
            known = ", ".join(sorted(self._global_type_vars)) or "none"
            raise TilewrightError(f"the module defines no type {name!r}; it defines {known}")
        return self._global_type_vars[name]

    def get_type(self, name: str) -> tuple[Any, ...]:
        """The type variable of a data type, then its constructors, as in TVM."""
        var = self.get_global_type_var(name)
        return (var, *self.type_definitions[var].constructors)

    def get_constructor(self, tag: int) -> Any:
        """Return the data constructor of ``tag``; raises TilewrightError if the module defines none."""
        for data in self.type_definitions.values():
            for constructor in data.constructors:
                if constructor.tag == tag:
                    return constructor
        raise TilewrightError(f"the module defines no data constructor with the tag {tag}")

    def astext(self, show_meta_data: bool = True, annotate: Callable[[Any], str] | None = None) -> str:
        """The module in Relay's text form; constants go to a metadata section unless it is left out."""
        own = self._own_text()
        if own is not None:
            return own
        return IRModule.to_text(self, version=True, show_meta_data=show_meta_data, annotate=annotate)

    def _own_text(self) -> str | None:
        """The text of a module whose functions are of a level with a module form of its own (TIR)."""
        kinds: set[Any] = {func.module_to_text for func in self.functions.values()}
        function = kinds.pop() if len(kinds) == 1 else None
        return None if function is None else function(self)

    def __str__(self) -> str:
        own = self._own_text()
        if own is not None:
            return own
        return IRModule.to_text(self, version=False, show_meta_data=False, annotate=None)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return text_html(f"IRModule, functions: {len(self.functions)}", str(self))
