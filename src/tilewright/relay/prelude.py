"""The standard data types and functions of Relay programs: Option, List, Tree, and functions on lists.

``Prelude(mod)`` adds the definitions to a module; a module that has them already keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import GlobalVar
from tilewright.ir.module import IRModule
from tilewright.ir.type import GlobalTypeVar
from tilewright.relay.adt import Constructor
from tilewright.relay.tensor_arrays import StaticTensorArrayOps as StaticTensorArrayOps
from tilewright.relay.tensor_arrays import TensorArrayOps, dynamic_name, static_name
from tilewright.relay.tensor_arrays import get_tensor_array_shape as get_tensor_array_shape
from tilewright.relay.text.parser import fromtext
from tilewright.relay.type_infer import infer_module

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

def @flip[A, B, C](%f: fn (A, B) -> C) -> fn (B, A) -> C {
  fn (%b: B, %a: A) -> C {
    %f(%a, %b)
  }
}

def @update[A](%xs: List[A], %n: int32, %v: A) -> List[A] {
  match? (%xs) {
    Cons(%x, %rest) => {
      if (equal(%n, 0)) {
        Cons(%v, %rest)
      } else {
        Cons(%x, @update(%rest, subtract(%n, 1), %v))
      }
    },
  }
}

def @foldr1[A](%f: fn (A, A) -> A, %xs: List[A]) -> A {
  match? (%xs) {
    Cons(%x, Nil) => %x,
    Cons(%x, %rest) => %f(%x, @foldr1(%f, %rest)),
  }
}

def @sum(%xs: List[int32]) -> int32 {
  match (%xs) {
    Cons(%x, %rest) => add(%x, @sum(%rest)),
    Nil => 0,
  }
}

def @zip[A, B](%xs: List[A], %ys: List[B]) -> List[(A, B)] {
  match ((%xs, %ys)) {
    (Cons(%x, %x_rest), Cons(%y, %y_rest)) => Cons((%x, %y), @zip(%x_rest, %y_rest)),
    _ => Nil,
  }
}

def @map_accuml[A, B, C](%f: fn (A, B) -> (A, C), %init: A, %xs: List[B]) -> (A, List[C]) {
  @foldl(fn (%state: (A, List[C]), %x: B) -> (A, List[C]) {
    let %step = %f(%state.0, %x);
    (%step.0, Cons(%step.1, %state.1))
  }, (%init, Nil), %xs)
}

def @map_accumr[A, B, C](%f: fn (A, B) -> (A, C), %init: A, %xs: List[B]) -> (A, List[C]) {
  @foldr(fn (%x: B, %state: (A, List[C])) -> (A, List[C]) {
    let %step = %f(%state.0, %x);
    (%step.0, Cons(%step.1, %state.1))
  }, (%init, Nil), %xs)
}

def @unfoldr[A, B](%f: fn (A) -> Option[(A, B)], %seed: A) -> List[B] {
  match (%f(%seed)) {
    Some(%step) => Cons(%step.1, @unfoldr(%f, %step.0)),
    None => Nil,
  }
}

def @unfoldl[A, B](%f: fn (A) -> Option[(A, B)], %seed: A) -> List[B] {
  @rev(@unfoldr(%f, %seed))
}

def @tmap[A, B](%f: fn (A) -> B, %t: Tree[A]) -> Tree[B] {
  match (%t) {
    Rose(%v, %branches) => Rose(%f(%v), @map(fn (%branch: Tree[A]) -> Tree[B] { @tmap(%f, %branch) }, %branches)),
  }
}

def @size[A](%t: Tree[A]) -> int32 {
  match (%t) {
    Rose(_, %branches) => add(1, @sum(@map(fn (%branch: Tree[A]) -> int32 { @size(%branch) }, %branches))),
  }
}

def @iterate[A](%f: fn (A) -> A, %n: int32) -> fn (A) -> A {
  if (equal(%n, 0)) {
    fn (%x: A) -> A { %x }
  } else {
    @compose(%f, @iterate(%f, subtract(%n, 1)))
  }
}

def @rev[A](%xs: List[A]) -> List[A] {
  @foldl(fn (%acc: List[A], %x: A) -> List[A] { Cons(%x, %acc) }, Nil, %xs)
}
"""


_CORE = """#[version = "0.0.5"]
extern type Storage
"""
_NAT = """#[version = "0.0.5"]
type nat {
  zero,
  succ(nat[]),
}

def @nat_add(%x: nat[], %y: nat[]) -> nat[] {
  match (%x) {
    zero => %y,
    succ(%less) => succ(@nat_add(%less, %y)),
  }
}

def @nat_double(%x: nat[]) -> nat[] {
  @nat_add(%x, %x)
}

def @nat_iterate[A](%f: fn (A) -> A, %n: nat[]) -> fn (A) -> A {
  match (%n) {
    zero => fn (%x: A) -> A { %x },
    succ(%less) => fn (%x: A) -> A { %f(@nat_iterate(%f, %less)(%x)) },
  }
}
"""
_NAT_OF_LISTS = """
def @nat_nth[A](%xs: List[A], %n: nat[]) -> A {
  match (%n) {
    zero => @hd(%xs),
    succ(%less) => @nat_nth(@tl(%xs), %less),
  }
}

def @nat_update[A](%xs: List[A], %n: nat[], %value: A) -> List[A] {
  match (%n) {
    zero => Cons(%value, @tl(%xs)),
    succ(%less) => Cons(@hd(%xs), @nat_update(@tl(%xs), %less, %value)),
  }
}
"""
_GRADIENT = """#[version = "0.0.5"]
type GradCell[T] {
  Raw(T),
  One(fn () -> T),
  Zero(fn () -> T),
}

def @FromGradCell[T](%cell: GradCell[T]) -> T {
  match (%cell) {
    Raw(%value) => %value,
    One(%make) => %make(),
    Zero(%make) => %make(),
  }
}

def @MultiplyGradCell[T](%multiply: fn (T, T) -> T, %l: GradCell[T], %r: GradCell[T]) -> GradCell[T] {
  match ((%l, %r)) {
    (Zero(_), _) => %l,
    (_, Zero(_)) => %r,
    (One(_), _) => %r,
    (_, One(_)) => %l,
    _ => Raw(%multiply(@FromGradCell(%l), @FromGradCell(%r))),
  }
}

def @AddGradCell[T](%add: fn (T, T) -> T, %l: GradCell[T], %r: GradCell[T]) -> GradCell[T] {
  match ((%l, %r)) {
    (Zero(_), _) => %r,
    (_, Zero(_)) => %l,
    _ => Raw(%add(@FromGradCell(%l), @FromGradCell(%r))),
  }
}
"""
# the parts that TVM's files rely on come with them: functions of both lists and numbers are the prelude's too
_LIBRARY = {
    "prelude.rly": _SOURCE,
    "core.rly": _CORE,
    "nat.rly": _SOURCE + _NAT.partition("\n")[2] + _NAT_OF_LISTS,
    "gradient.rly": _GRADIENT,
}


def standard_library(file_name: str) -> IRModule:
    """Return a part of the library by TVM's name of its file, typed: the prelude, types for programs about memory,
    natural numbers (with the prelude), or sparse gradients.

    Raises:
        ValueError: there is no such part.
    """
    if file_name not in _LIBRARY:
        raise ValueError(f"Relay's library has no {file_name!r}; it has {', '.join(_LIBRARY)}")
    return infer_module(fromtext(_LIBRARY[file_name]))


def _named(constructors: Sequence[Constructor], name: str) -> Constructor:
    for constructor in constructors:
        if constructor.name_hint == name:
            return constructor
    raise ValueError(f"there is no constructor {name}; there is {', '.join(c.name_hint for c in constructors)}")


class Prelude:
    """The standard definitions, added to ``mod`` or to a new module, by name.

    ``prelude.l``, ``cons``, ``nil``; ``prelude.optional``, ``some``, ``none``; ``prelude.tree``, ``rose``;
    ``prelude.id``, ``map``, ``foldl`` and so on are the global functions. Tensor arrays (``tensor_arrays``) are added
    when one of their names is first asked for.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        if not any(v.name_hint == "List" for v in self.mod.type_definitions):
            self.mod.update(standard_library("prelude.rly"))
        self.l, self.cons, self.nil = self.mod.get_type("List")
        self.optional, self.some, self.none = self.mod.get_type("Option")
        self.tree, self.rose = self.mod.get_type("Tree")
        self.mod.type_suppliers.append(self._supply)

    def get_type(self, canonical: str, dtype: str) -> GlobalTypeVar:
        """Return the data type ``tensor_t`` for tensors of ``dtype`` and unknown dimensions."""
        self._register(dtype)
        return self.mod.get_global_type_var(self.get_name(canonical, dtype))

    def get_name(self, canonical: str, dtype: str) -> str:
        """Return the name of a function, constructor or type of tensor arrays."""
        return dynamic_name(canonical, dtype)

    def get_global_var(self, canonical: str, dtype: str) -> GlobalVar:
        """Return a function on tensor arrays of ``dtype``: ``get_global_var("tensor_array_read", "float32")``."""
        self._register(dtype)
        return self.mod.get_global_var(self.get_name(canonical, dtype))

    def get_ctor(self, ty_name: str, canonical: str, dtype: str) -> Constructor:
        """Return a constructor of the type ``ty_name``: ``get_ctor("tensor_float32_t", "tensor2", "float32")``."""
        self._register(dtype)
        return _named(self.mod.get_type(ty_name)[1:], self.get_name(canonical, dtype))

    def get_tensor_ctor(self, canonical: str, dtype: str) -> Constructor:
        """Return a constructor of ``tensor_t``: ``tensor_nil``, or ``tensor0`` to ``tensor6``."""
        return self.get_ctor(self.get_name("tensor_t", dtype), canonical, dtype)

    def _supply(self, name: str) -> None:
        """Add the tensor arrays of the type ``name``, if it is one."""
        found = re.fullmatch(r"tensor_((?:float|int|uint)\d+|bool)_t", name)
        if found:
            self._register(found[1])

    def _register(self, dtype: str) -> None:
        TensorArrayOps(self, dtype).register()

    def get_name_static(self, canonical: str, dtype: str, shape: Sequence[Any], batch_dim: int | None = None) -> str:
        """Return the name of a function, constructor or type for tensors of one shape (``StaticTensorArrayOps``)."""
        return static_name(canonical, dtype, shape, batch_dim)

    def get_global_var_static(
        self, canonical: str, dtype: str, shape: Sequence[Any], batch_dim: int | None = None
    ) -> GlobalVar:
        """Return a function for tensors of one shape."""
        return self.mod.get_global_var(self.get_name_static(canonical, dtype, shape, batch_dim))

    def get_type_static(self, canonical: str, dtype: str, shape: Sequence[Any]) -> GlobalTypeVar:
        """Return the data type of tensors of one shape."""
        return self.mod.get_global_type_var(self.get_name_static(canonical, dtype, shape))

    def get_ctor_static(self, ty_name: str, name: str, dtype: str, shape: Sequence[Any]) -> Constructor:
        """Return a constructor of a type for tensors of one shape."""
        found = self.mod.get_type(self.get_name_static(ty_name, dtype, shape))
        return _named(found[1:], self.get_name_static(name, dtype, shape))

    def get_tensor_ctor_static(self, name: str, dtype: str, shape: Sequence[Any]) -> Constructor:
        """Return a constructor of ``tensor_t``: ``tensor_constructor`` or ``tensor_nil``."""
        return self.get_ctor_static("tensor_t", name, dtype, shape)

    def __getattr__(self, name: str) -> GlobalVar:
        mod: IRModule = self.__dict__["mod"]
        if mod.contains_global_var(name):
            return mod.get_global_var(name)
        raise AttributeError(f"the prelude has no {name!r}")
