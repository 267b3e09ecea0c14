"""Tensor arrays: lists of tensors that loops write and read, as functions and data types of a module.

``TensorArrayOps(prelude, "float32")`` has tensors of ranks 0 to 6 with unknown dimensions::

    type tensor_float32_t { tensor_nil_float32, tensor0_float32(float32), tensor1_float32(Tensor[(?), float32]), ... }
    def @tensor_array_float32(%n: int32) -> List[tensor_float32_t[]]          # n times tensor_nil
    def @tensor_array_write_float32(%tensor_array, %n: int32, %v) ...

``StaticTensorArrayOps(prelude, "float32", (3, 2))`` has tensors of one shape, whose dimensions may be ``Any``::

    type static_tensor_float32_3_2_t { tensor_nil_float32_3_2, tensor_constructor_float32_3_2(Tensor[(3, 2), float32]) }

Both have tensor_take, tensor_concatenate, tensor_expand_dims, tensor_array, and for arrays read, write, unstack,
scatter, split, concat, stack and gather; those of one shape tensor_get_data. Those of unknown dimensions are added to a
module when its ``Prelude`` is first asked for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.ir.expr import GlobalVar
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import GlobalTypeVar
from tilewright.relay.adt import Constructor
from tilewright.relay.analysis import free_vars
from tilewright.relay.expr import Function
from tilewright.relay.text.parser import parse
from tilewright.relay.type_infer import infer_module

MAX_RANK = 6
Dims = Sequence[Any]


def _tensor(shape: Iterable[Any], dtype: str) -> str:
    """Return the text of a tensor type."""
    dims = ["?" if isinstance(d, AnyDim) else str(int(d)) for d in shape]
    return f"Tensor[({', '.join(dims)}), {dtype}]" if dims else dtype


def _add(mod: IRModule, text: str) -> None:
    """Add the definitions of a text that the module does not have."""
    if not text:
        return
    parsed = parse(text, "tensor arrays", mod)
    for type_var, data in parsed.type_definitions.items():
        if not any(v.name_hint == type_var.name_hint for v in mod.type_definitions):
            mod[type_var] = data
    for var, func in parsed.functions.items():
        if not mod.contains_global_var(var.name_hint):
            mod[var] = func


def _constructor(mod: IRModule, type_name: str, name: str) -> Constructor:
    for constructor in mod.get_type(type_name)[1:]:
        if constructor.name_hint == name:
            found: Constructor = constructor
            return found
    raise ValueError(f"the type {type_name} has no constructor {name}")


def static_name(canonical: str, dtype: str, shape: Dims, batch_dim: int | None = None) -> str:
    """Return the name of a function, constructor or type (``tensor_t``) for tensors of one shape."""
    dims = "_".join("any" if isinstance(d, AnyDim) else str(int(d)) for d in shape) or "scalar"
    if canonical == "tensor_t":
        return f"static_tensor_{dtype}_{dims}_t"
    if batch_dim == 1 and canonical not in ("tensor_constructor", "tensor_nil"):
        return f"{canonical}_{dtype}_batch1_{dims}"
    return f"{canonical}_{dtype}_{dims}"


def dynamic_name(canonical: str, dtype: str) -> str:
    """Return the name of a function, constructor or type (``tensor_t``) for tensors of unknown dimensions."""
    return f"tensor_{dtype}_t" if canonical == "tensor_t" else f"{canonical}_{dtype}"


def _array_functions(name: Callable[[str], str], tensor: str, stacked: str, indices: str, count: str) -> dict[str, str]:
    """Return the functions of arrays that do not depend on the tensors' rank.

    ``tensor`` and ``stacked`` are the types of elements and of the result of ``stack``; ``count`` is the number of
    ``%indices``, which have the type ``indices``.
    """
    array = f"List[{tensor}]"
    return {
        "tensor_array": f"""(%n: int32) -> {array} {{
          if (equal(%n, 0)) {{ Nil }} else {{ Cons({name("tensor_nil")}, @{name("tensor_array")}(subtract(%n, 1))) }}
        }}""",
        "tensor_array_read": f"(%tensor_array: {array}, %n: int32) -> {tensor} {{ @nth(%tensor_array, %n) }}",
        "tensor_array_write": f"""(%tensor_array: {array}, %n: int32, %v: {tensor}) -> {array} {{
          @update(%tensor_array, %n, %v)
        }}""",
        "tensor_array_scatter_helper": f"""(%ta: {array}, %current: int32, %limit: int32, %indices: {indices},
                                            %values: {array}) -> {array} {{
          if (equal(%current, %limit)) {{ %ta }} else {{
            @{name("tensor_array_scatter_helper")}(
              @{name("tensor_array_write")}(%ta, take(%indices, %current),
                @{name("tensor_array_read")}(%values, %current)),
              add(%current, 1), %limit, %indices, %values)
          }}
        }}""",
        "tensor_array_scatter": f"""(%tensor_array: {array}, %indices: {indices}, %values: {array}) -> {array} {{
          @{name("tensor_array_scatter_helper")}(%tensor_array, 0, {count}, %indices, %values)
        }}""",
        "tensor_array_gather_helper": f"""(%ta: {array}, %found: {array}, %current: int32, %limit: int32,
                                           %indices: Tensor[(?), int32]) -> {stacked} {{
          if (equal(%current, 0)) {{ @{name("tensor_array_stack")}(%found) }} else {{
            let %before = subtract(%current, 1);
            let %element = @{name("tensor_array_read")}(%ta, take(%indices, %before));
            @{name("tensor_array_gather_helper")}(%ta, Cons(%element, %found), %before, %limit, %indices)
          }}
        }}""",
        "tensor_array_gather": f"""(%tensor_array: {array}, %indices: Tensor[(?), int32]) -> {stacked} {{
          let %limit = take(shape_of(%indices, dtype="int32"), 0);
          @{name("tensor_array_gather_helper")}(%tensor_array, Nil, %limit, %limit, %indices)
        }}""",
    }


_COUNT = '(take(shape_of(%indices, dtype="int32"), 0))'
_LENGTHS = '(take(shape_of(%lengths, dtype="int32"), 0))'
_RANGE = 'arange(%lower, %upper, 1, dtype="int32")'


def _split(helper: str, take: str, write: str, array: str, value: str, lengths: str) -> str:
    """Return the body of the function behind tensor_array_split: the last piece is written first."""
    return f"""(%ta: {array}, %value: {value}, %offset: int32, %current: int32, %limit: int32,
                %lengths: {lengths}) -> {array} {{
      if (equal(%current, %limit)) {{ %ta }} else {{
        let %end = add(%offset, take(%lengths, %current));
        let %rest = @{helper}(%ta, %value, %end, add(%current, 1), %limit, %lengths);
        @{write}(%rest, %current, @{take}(%value, %offset, %end))
      }}
    }}"""


def _concat(concat: str, concatenate: str, nil: str, tensor: str) -> str:
    return f"""(%tensor_array: List[{tensor}]) -> {tensor} {{
      match (%tensor_array) {{
        Nil => {nil},
        Cons(%only, Nil) => %only,
        Cons(%head, %rest) => @{concatenate}(%head, @{concat}(%rest)),
      }}
    }}"""


def _unstack(helper: str, tensor: str, element: str, constructor: str) -> tuple[str, str]:
    """Return the functions that unstack a tensor."""
    loop = f"""(%i: int32, %up: int32, %t: {tensor}) -> List[{element}] {{
      if (equal(%i, %up)) {{ Nil }} else {{
        Cons({constructor}(take(%t, %i, axis=0)), @{helper}(add(%i, 1), %up, %t))
      }}
    }}"""
    whole = f"""(%tensor: {tensor}) -> List[{element}] {{
      @{helper}(0, take(shape_of(%tensor, dtype="int32"), 0), %tensor)
    }}"""
    return loop, whole


class _ArrayOps:
    """The definitions of a prelude's module for the tensors of a dtype, by names that include it."""

    def __init__(self, prelude: Any, dtype: str) -> None:
        self.prelude = prelude
        self.dtype = dtype
        self.list, self.cons, self.nil = prelude.mod.get_type("List")

    def get_name(self, canonical: str) -> str:
        """Return the name in the module."""
        raise NotImplementedError

    def get_global_var(self, canonical: str) -> GlobalVar:
        """Return a function."""
        found: GlobalVar = self.prelude.mod.get_global_var(self.get_name(canonical))
        return found

    def get_type(self, canonical: str) -> GlobalTypeVar:
        """Return the data type ``tensor_t``."""
        found: GlobalTypeVar = self.prelude.mod.get_global_type_var(self.get_name(canonical))
        return found

    def get_ctor(self, canonical: str) -> Constructor:
        """Return a constructor: ``tensor_nil``, and ``tensor0`` to ``tensor6`` or, for one shape,
        ``tensor_constructor``.
        """
        return _constructor(self.prelude.mod, self.get_name("tensor_t"), self.get_name(canonical))

    def has_type(self) -> bool:
        """Return whether the module has the data type."""
        name = self.get_name("tensor_t")
        return any(v.name_hint == name for v in self.prelude.mod.type_definitions)


class TensorArrayOps(_ArrayOps):
    """Functions on tensors of ranks 0 to 6 of a dtype, whose dimensions are unknown."""

    def get_name(self, canonical: str) -> str:
        """Return the name with the dtype."""
        return dynamic_name(canonical, self.dtype)

    def register(self) -> None:
        """Add the type and all functions that the prelude's module does not have."""
        tensor_type = self.get_name("tensor_t")
        if self.has_type():
            return
        ranks = (self._constructor_of(rank) for rank in range(MAX_RANK + 1))
        cases = ", ".join([self.get_name("tensor_nil"), *ranks])
        functions = [f"def @{self.get_name(key)}{text}" for key, text in self._functions().items()]
        _add(self.prelude.mod, "\n".join([f"type {tensor_type} {{ {cases}, }}", *functions]))

    def _constructor_of(self, rank: int) -> str:
        return f"{self.get_name(f'tensor{rank}')}({_tensor([AnyDim()] * rank, self.dtype)})"

    def _functions(self) -> dict[str, str]:
        name = self.get_name
        tensor = f"{name('tensor_t')}[]"
        array = f"List[{tensor}]"

        def by_rank(ranks: Iterable[int], value: Callable[[int], str]) -> str:
            return " ".join(f"{name(f'tensor{r}')}(%t) => {value(r)}," for r in ranks)

        taken = by_rank(range(1, MAX_RANK + 1), lambda r: f"{name(f'tensor{r}')}(take(%t, {_RANGE}, axis=0))")
        grown = by_rank(range(MAX_RANK), lambda r: f"{name(f'tensor{r + 1}')}(expand_dims(%t, axis=0))")
        joined = " ".join(
            f"({c}(%a), {c}(%b)) => {c}(concatenate((%a, %b), axis=0)),"
            for c in (name(f"tensor{r}") for r in range(1, MAX_RANK + 1))
        )
        found = {
            "tensor_take": f"""(%tensor: {tensor}, %lower: int32, %upper: int32) -> {tensor} {{
              match? (%tensor) {{ {taken} }}
            }}""",
            "tensor_expand_dims": f"(%x: {tensor}) -> {tensor} {{ match? (%x) {{ {grown} }} }}",
            "tensor_concatenate": f"(%x: {tensor}, %y: {tensor}) -> {tensor} {{ match? ((%x, %y)) {{ {joined} }} }}",
            **_array_functions(name, tensor, tensor, "Tensor[(?), int32]", _COUNT),
            "ta_split_helper": _split(
                name("ta_split_helper"), name("tensor_take"), name("tensor_array_write"), array, tensor,
                "Tensor[(?), int32]",
            ),
            "tensor_array_split": f"""(%tensor_array: {array}, %value: {tensor}, %lengths: Tensor[(?), int32])
                -> {array} {{ @{name("ta_split_helper")}(%tensor_array, %value, 0, 0, {_LENGTHS}, %lengths) }}""",
            "tensor_array_concat": _concat(
                name("tensor_array_concat"), name("tensor_concatenate"), name("tensor_nil"), tensor
            ),
            "tensor_array_stack": f"""(%tensor_array: {array}) -> {tensor} {{
              let %grown = @map(@{name("tensor_expand_dims")}, %tensor_array);
              @foldl(@{name("tensor_concatenate")}, @hd(%grown), @tl(%grown))
            }}""",
        }  # fmt: skip
        for rank in range(1, MAX_RANK + 1):
            key = f"tensor_array_unstack_tensor{rank}"
            tensor_of_rank = _tensor([AnyDim()] * rank, self.dtype)
            found[f"{key}_helper"], found[key] = _unstack(
                name(f"{key}_helper"), tensor_of_rank, tensor, name(f"tensor{rank - 1}")
            )
        return found


class StaticTensorArrayOps(_ArrayOps):
    """Functions on tensors of a dtype and one shape.

    Parameters
    ----------
    shape : numbers, or ``Any``.
    batch_dim : 1 where arrays have one element, so that stacking yields the dimension 1; otherwise it is unknown.
    """

    def __init__(self, prelude: Any, dtype: str, shape: Dims, batch_dim: int | None = None) -> None:
        super().__init__(prelude, dtype)
        self.shape = shape
        self.batch_dim = batch_dim

    def get_name(self, canonical: str) -> str:
        """Return the name with dtype and shape."""
        return static_name(canonical, self.dtype, self.shape, self.batch_dim)

    def is_cached(self, name: str) -> bool:
        """Return whether the module has a function of that name."""
        return bool(self.prelude.mod.contains_global_var(name))

    def register(self) -> None:
        """Add the type and all functions that the prelude's module does not have."""
        self.define_tensor_adt()
        self.define_tensor_take()
        self.define_tensor_concatenate()
        self.define_tensor_expand_dims()
        self.define_tensor_array()
        self.define_tensor_array_read()
        self.define_tensor_array_write()
        self.define_tensor_array_unstack()
        self.define_tensor_array_scatter()
        self.define_tensor_array_split()
        self.define_tensor_array_concat()
        self.define_tensor_array_stack()
        self.define_tensor_array_gather()
        self.define_tensor_get_data()

    # ---- types ----

    @property
    def _tensor_t(self) -> str:
        return f"{self.get_name('tensor_t')}[]"

    def _of_shape(self, shape: Dims) -> StaticTensorArrayOps:
        """Return the same for tensors of another shape, with its type."""
        ops = StaticTensorArrayOps(self.prelude, self.dtype, tuple(shape), self.batch_dim)
        ops.define_tensor_adt()
        return ops

    def _of_any_length(self) -> StaticTensorArrayOps:
        """Return the same for tensors with any first dimension: parts or concatenations of these."""
        return self._of_shape((AnyDim(), *self.shape[1:]))

    def _stacked(self) -> StaticTensorArrayOps:
        return self._of_shape((1 if self.batch_dim == 1 else AnyDim(), *self.shape))

    def _define(self, key: str, text: str) -> None:
        name = self.get_name(key)
        if not self.is_cached(name):
            _add(self.prelude.mod, f"def @{name}{text}")

    def _unwrap(self, value: str, variable: str, then: str) -> str:
        return f"match? ({value}) {{ {self.get_name('tensor_constructor')}({variable}) => {then}, }}"

    def define_tensor_adt(self) -> None:
        """Define the data type: nothing, or a tensor."""
        if not self.has_type():
            tensor = f"{self.get_name('tensor_constructor')}({_tensor(self.shape, self.dtype)})"
            _add(self.prelude.mod, f"type {self.get_name('tensor_t')} {{ {self.get_name('tensor_nil')}, {tensor}, }}")
        self.tensor_type_var = self.get_type("tensor_t")

    # ---- tensors ----

    def define_tensor_take(self) -> None:
        """Define ``tensor_take(tensor, lower, upper)``: a range of the first axis."""
        if len(self.shape) == 0:
            return
        self.define_tensor_adt()
        out = self._of_any_length()
        taken = f"{out.get_name('tensor_constructor')}(take(%t, {_RANGE}, axis=0))"
        self._define(
            "tensor_take",
            f"(%tensor: {self._tensor_t}, %lower: int32, %upper: int32) -> {out._tensor_t} "
            f"{{ {self._unwrap('%tensor', '%t', taken)} }}",
        )

    def define_tensor_concatenate(self) -> None:
        """Define ``tensor_concatenate(x, y)`` along the first axis."""
        if len(self.shape) == 0:
            return
        self.define_tensor_adt()
        out = self._of_any_length()
        joined = f"{out.get_name('tensor_constructor')}(concatenate((%a, %b), axis=0))"
        body = self._unwrap("%x", "%a", self._unwrap("%y", "%b", joined))
        text = f"(%x: {self._tensor_t}, %y: {self._tensor_t}) -> {out._tensor_t} {{ {body} }}"
        self._define("tensor_concatenate", text)

    def define_tensor_expand_dims(self) -> None:
        """Define ``tensor_expand_dims(x)``: a new first axis."""
        self.define_tensor_adt()
        out = self._stacked()
        body = self._unwrap("%x", "%t", f"{out.get_name('tensor_constructor')}(expand_dims(%t, axis=0))")
        self._define("tensor_expand_dims", f"(%x: {self._tensor_t}) -> {out._tensor_t} {{ {body} }}")

    def define_tensor_get_data(self) -> None:
        """Define ``tensor_get_data(tensor)``: the tensor in a value."""
        self.define_tensor_adt()
        body = self._unwrap("%tensor", "%t", "%t")
        self._define(
            "tensor_get_data", f"(%tensor: {self._tensor_t}) -> {_tensor(self.shape, self.dtype)} {{ {body} }}"
        )

    # ---- arrays ----

    def _define_of_arrays(self, *keys: str, indices: str = "Tensor[(?), int32]", count: str = _COUNT) -> None:
        self.define_tensor_adt()
        texts = _array_functions(self.get_name, self._tensor_t, self._stacked()._tensor_t, indices, count)
        for key in keys:
            self._define(key, texts[key])

    def define_tensor_array(self) -> None:
        """Define ``tensor_array(n)``: an array of ``n`` times nothing."""
        self._define_of_arrays("tensor_array")

    def define_tensor_array_read(self) -> None:
        """Define ``tensor_array_read(tensor_array, n)``."""
        self._define_of_arrays("tensor_array_read")

    def define_tensor_array_write(self) -> None:
        """Define ``tensor_array_write(tensor_array, n, v)``: the array with element ``n`` replaced."""
        self._define_of_arrays("tensor_array_write")

    def define_tensor_array_unstack(self) -> None:
        """Define ``tensor_array_unstack(tensor)``: the array of the slices along the first axis."""
        if len(self.shape) == 0:
            return
        out = self._of_shape(self.shape[1:])
        helper = self.get_name("tensor_array_unstack_helper")
        tensor = _tensor(self.shape, self.dtype)
        loop, whole = _unstack(helper, tensor, out._tensor_t, out.get_name("tensor_constructor"))
        self._define("tensor_array_unstack_helper", loop)
        self._define("tensor_array_unstack", whole)

    def define_tensor_array_scatter(self, indices_shape: Dims | None = None, force_update: bool = False) -> None:
        """Define ``tensor_array_scatter(tensor_array, indices, values)``: the array with the elements at ``indices``
        replaced.

        ``force_update`` replaces an earlier definition by one for indices of the shape ``indices_shape``.
        """
        keys = ("tensor_array_scatter_helper", "tensor_array_scatter")
        if force_update:
            self._forget(keys)
        self._define_of_arrays("tensor_array_read", "tensor_array_write")
        known = indices_shape is not None and isinstance(_plain(indices_shape[0]), int)
        count = str(_plain(indices_shape[0])) if known and indices_shape is not None else _COUNT
        self._define_of_arrays(*keys, indices=_tensor(indices_shape or [AnyDim()], "int32"), count=count)

    def define_tensor_array_split(
        self, value_shape: Dims | None = None, lengths_shape: Dims | None = None, force_update: bool = False
    ) -> None:
        """Define ``tensor_array_split(tensor_array, value, lengths)``: the array with pieces of ``value`` as elements.

        ``force_update`` replaces an earlier definition by one for a value and lengths of the given shapes.
        """
        if len(self.shape) == 0:
            return
        keys = ("ta_split_helper", "tensor_array_split")
        if force_update:
            self._forget(keys)
        value = self if value_shape is None else self._of_shape(value_shape)
        value.define_tensor_take()
        out = value._of_any_length() if value_shape is not None else self._of_any_length()
        out.define_tensor_array_write()
        array, lengths = f"List[{out._tensor_t}]", _tensor(lengths_shape or [AnyDim()], "int32")
        names = self.get_name("ta_split_helper"), value.get_name("tensor_take"), out.get_name("tensor_array_write")
        self._define("ta_split_helper", _split(*names, array, value._tensor_t, lengths))
        self._define(
            "tensor_array_split",
            f"(%tensor_array: {array}, %value: {value._tensor_t}, %lengths: {lengths}) -> {array} "
            f"{{ @{names[0]}(%tensor_array, %value, 0, 0, {_LENGTHS}, %lengths) }}",
        )

    def define_tensor_array_concat(self) -> None:
        """Define ``tensor_array_concat(tensor_array)``: the elements along the first axis."""
        if len(self.shape) == 0:
            return
        out = self._of_any_length()
        out.define_tensor_concatenate()
        names = self.get_name("tensor_array_concat"), out.get_name("tensor_concatenate"), out.get_name("tensor_nil")
        self._define("tensor_array_concat", _concat(*names, out._tensor_t))

    def define_tensor_array_stack(self) -> None:
        """Define ``tensor_array_stack(tensor_array)``: the elements along a new first axis."""
        self.define_tensor_expand_dims()
        out = self._stacked()
        grown = f"@map(@{self.get_name('tensor_expand_dims')}, %tensor_array)"
        body = f"@hd({grown})"
        if self.batch_dim != 1:
            out.define_tensor_concatenate()
            joined = f"@foldl(@{out.get_name('tensor_concatenate')}, @hd(%grown), @tl(%grown))"
            body = f"let %grown = {grown}; {joined}"
        self._define("tensor_array_stack", f"(%tensor_array: List[{self._tensor_t}]) -> {out._tensor_t} {{ {body} }}")

    def define_tensor_array_gather(self) -> None:
        """Define ``tensor_array_gather(tensor_array, indices)``: the elements at ``indices`` along a new first
        axis.
        """
        self.define_tensor_array_stack()
        self._define_of_arrays("tensor_array_read", "tensor_array_gather_helper", "tensor_array_gather")

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            if self.is_cached(self.get_name(key)):
                del self.prelude.mod[self.get_name(key)]


def _plain(dim: Any) -> Any:
    return dim.value if isinstance(dim, IntImm) else dim


def get_tensor_array_shape(expr: Any, dtype: str, prelude: Any) -> tuple[Any, ...] | None:
    """Return the shape of the tensors in an array; None where their dimensions are unknown."""
    mod = prelude.mod.copy()
    mod["tensor_array_asked_for"] = Function(free_vars(expr), expr)
    found = infer_module(mod)["tensor_array_asked_for"].body.checked_type
    name = found.args[0].func.name_hint
    start = f"static_tensor_{dtype}_"
    if not name.startswith(start):
        return None
    dims = name.removeprefix(start).removesuffix("_t")
    return () if dims == "scalar" else tuple(AnyDim() if d == "any" else int(d) for d in dims.split("_"))
