"""The interface of a program with named dimensions, as text: the machine checks inputs by it, and tools read it.

Lines, whose fields tabs separate (``native/src/vm/inputs.c`` reads the same)::

    input   int64     batch,seq      ids       an input of main: data type, dimensions, name
    input   int64     batch,old+seq  mask      a dimension may be a sum of names and numbers
    output  float32   batch,seq,768  y         an output; a dimension that is no number and has no name is ?
    dim     batch     1  8  1                  least and greatest value (-1: none), and the number that divides it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Add, DimVar, IntImm, PrimExpr
from tilewright.ir.type import TensorType, tensors_of
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import OUTPUT_NAMES
from tilewright.runtime.ndarray import NDArray, array
from tilewright.version import __version__


def interface_of(mod: IRModule, target: str, sources: Mapping[str, Sequence[str]]) -> str:
    """Return the interface of a model, or of what has named dimensions; "" of others, and where an input is no tensor.

    Args:
        mod: the module whose main runs.
        target: the target's text.
        sources: of each kernel, the names of the model's nodes.
    """
    main = mod["main"]
    assert isinstance(main, Function)
    types = [p.checked_type for p in main.params]
    inputs = [t for t in types if isinstance(t, TensorType)]
    named = list(dict.fromkeys(d for t in inputs for d in t.shape if isinstance(d, DimVar)))
    if len(inputs) != len(types) or not (named or OUTPUT_NAMES.has(mod)):
        return ""
    outputs = list(tensors_of(main.body.checked_type))
    words = _words([*named, *(d for t in outputs for d in t.shape if isinstance(d, DimVar))])
    lines = [_line("input", t, p.name_hint, words) for t, p in zip(inputs, main.params, strict=True)]
    names: Sequence[str] = [str(n) for n in OUTPUT_NAMES.get(mod, ())]
    if len(names) != len(outputs):
        names = [f"output{i}" for i in range(len(outputs))]
    lines += [_line("output", t, n, words) for t, n in zip(outputs, names, strict=True)]
    for dim in named:
        high = -1 if dim.high is None else dim.high
        lines.append(f"dim\t{words[dim]}\t{dim.low}\t{high}\t{dim.multiple}")
    lines += ["", f"made by\tTilewright {__version__}", f"target\t{target}"]
    lines += ["\t".join(["kernel", kernel, *map(_printable, names)]) for kernel, names in sources.items() if names]
    return "\n".join(lines)


def _line(kind: str, type_: TensorType, name: str, words: Mapping[PrimExpr, str]) -> str:
    dims = ",".join(_dim(d, words) for d in type_.shape)
    return f"{kind}\t{type_.dtype}\t{dims}\t{_printable(name)}"


def _dim(dim: PrimExpr, words: Mapping[PrimExpr, str]) -> str:
    if isinstance(dim, Add):
        parts = [_dim(part, words) for part in (dim.a, dim.b)]
        return "?" if "?" in parts else "+".join(parts)
    return str(dim.value) if isinstance(dim, IntImm) else words.get(dim, "?")


def _printable(name: str) -> str:
    return name.translate({9: " ", 10: " "})


def _words(dims: Iterable[DimVar]) -> dict[PrimExpr, str]:
    """Return the name of each dimension as one word that is no number; distinct names stay distinct ("a b", "a_b")."""
    words: dict[PrimExpr, str] = {}
    for dim in dims:
        if dim not in words:
            word = _word(dim.name)
            numbered = (f"{word}_{number}" for number in count(2))
            words[dim] = next(w for w in chain([word], numbered) if w not in words.values())
    return words


def _word(name: str) -> str:
    word = "".join("_" if c in "\t\n, ?+" else c for c in name) or "_"
    return f"_{word}" if word.lstrip("-").isdigit() else word


def interface_array(text: str) -> NDArray:
    """Return the text as a vector of bytes."""
    return array(np.frombuffer(text.encode(), np.uint8).copy())
