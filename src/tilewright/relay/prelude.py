"""The standard data types and functions of Relay programs: Option, List, Tree, and functions on lists.

``Prelude(mod)`` adds the definitions to a module; a module that has them already keeps its own.
"""

from __future__ import annotations

from tilewright.ir.expr import GlobalVar
from tilewright.ir.module import IRModule
from tilewright.ir.type import GlobalTypeVar
from tilewright.relay.adt import Constructor
from tilewright.relay.text.parser import fromtext

_SOURCE = """#[version = "0.0.5"]
type Option[A] {
  Some(A),
  None,
}

type List[A] {
  Cons(A, List[A]),
  Nil,
}

type Tree[A] {
  Rose(A, List[Tree[A]]),
}

def @id[A](%x: A) -> A {
  %x
}

def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C {
  fn (%x: A) -> C {
    %f(%g(%x))
  }
}

def @hd[A](%xs: List[A]) -> A {
  match? (%xs) {
    Cons(%x, _) => %x,
  }
}

def @tl[A](%xs: List[A]) -> List[A] {
  match? (%xs) {
    Cons(_, %rest) => %rest,
  }
}

def @nth[A](%xs: List[A], %n: int32) -> A {
  if (equal(%n, 0)) {
    @hd(%xs)
  } else {
    @nth(@tl(%xs), subtract(%n, 1))
  }
}

def @length[A](%xs: List[A]) -> int32 {
  match (%xs) {
    Cons(_, %rest) => add(1, @length(%rest)),
    Nil => 0,
  }
}

def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) {
    Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)),
    Nil => Nil,
  }
}

def @foldl[A, B](%f: fn (A, B) -> A, %acc: A, %xs: List[B]) -> A {
  match (%xs) {
    Cons(%x, %rest) => @foldl(%f, %f(%acc, %x), %rest),
    Nil => %acc,
  }
}

def @foldr[A, B](%f: fn (A, B) -> B, %bs: B, %xs: List[A]) -> B {
  match (%xs) {
    Cons(%x, %rest) => %f(%x, @foldr(%f, %bs, %rest)),
    Nil => %bs,
  }
}

def @concat[A](%xs: List[A], %ys: List[A]) -> List[A] {
  match (%xs) {
    Cons(%x, %rest) => Cons(%x, @concat(%rest, %ys)),
    Nil => %ys,
  }
}

def @filter[A](%f: fn (A) -> bool, %xs: List[A]) -> List[A] {
  match (%xs) {
    Cons(%x, %rest) => {
      if (%f(%x)) {
        Cons(%x, @filter(%f, %rest))
      } else {
        @filter(%f, %rest)
      }
    },
    Nil => Nil,
  }
}

def @rev[A](%xs: List[A]) -> List[A] {
  @foldl(fn (%acc: List[A], %x: A) -> List[A] { Cons(%x, %acc) }, Nil, %xs)
}
"""


_CORE = """#[version = "0.0.5"]
extern type Storage
"""
_LIBRARY = {"prelude.rly": _SOURCE, "core.rly": _CORE}


def standard_library(file_name: str) -> IRModule:
    """A part of the library by TVM's name of its file: the prelude, or what programs about memory use.

    Raises:
        ValueError: there is no such part.
    """
    if file_name not in _LIBRARY:
        raise ValueError(f"Relay's library has no {file_name!r}; it has {', '.join(_LIBRARY)}")
    return fromtext(_LIBRARY[file_name])


class Prelude:
    """Adds the standard definitions to ``mod`` (or to a new module) and gives access to them.

    ``prelude.l``, ``cons``, ``nil``; ``prelude.optional``, ``some``, ``none``; ``prelude.tree``, ``rose``;
    ``prelude.id``, ``map``, ``foldl`` and so on are the global functions.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        if not any(v.name_hint == "List" for v in self.mod.type_definitions):
            self.mod.update(fromtext(_SOURCE))
        self.l, self.cons, self.nil = self.get_type("List")
        self.optional, self.some, self.none = self.get_type("Option")
        self.tree, self.rose = self.get_type("Tree")

    def get_type(self, name: str) -> tuple[GlobalTypeVar | Constructor, ...]:
        """The type variable of a data type, then its constructors."""
        return self.mod.get_type(name)

    def get_ctor(self, ty_name: str, canonical: bool, ctor_name: str) -> Constructor:
        """The constructor of a data type by name."""
        for constructor in self.mod.get_type(ty_name)[1:]:
            if constructor.name_hint.lower() == ctor_name.lower():
                found: Constructor = constructor
                return found
        raise ValueError(f"the type {ty_name} has no constructor {ctor_name}")

    def __getattr__(self, name: str) -> GlobalVar:
        mod: IRModule = self.__dict__["mod"]
        if mod.contains_global_var(name):
            return mod.get_global_var(name)
        raise AttributeError(f"the prelude has no {name!r}")
