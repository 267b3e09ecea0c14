"""Functions that OpenCL C lacks, or defines differently from TIR; a source includes those that it uses.

A name says the dtype, with its lanes: ``tw_max_float32x4``. float16 is ``tw_float16``, which is ``half`` where the
device has ``cl_khr_fp16``, and a ``float`` with the value of one where it has not: such a device loads and stores it by
``vload_half`` and ``vstore_half``, and every operation is rounded to 11 bits. Sums, products and quotients of float16
in float32 that are rounded once more are those of float16 (float32 has more than twice its bits, and two).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from tilewright.ir import dtype as dt

_NAMES = {
    "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar", "uint16": "ushort",
    "uint32": "uint", "uint64": "ulong", "float32": "float", "float64": "double", "float16": "tw_float16",
    "bool": "uchar", "bfloat16": "ushort", "void": "void", "handle": "void*",
}  # fmt: skip


def type_name(dtype: str) -> str:
    """Return the type of a value; flags in a vector are ints, -1 for true, as vector comparisons produce."""
    lanes, element = dt.lanes(dtype), dt.element(dtype)
    if lanes == 1:
        return _NAMES.get(element, element)
    if element == "float16":
        return f"tw_float16x{lanes}"
    return f"{'int' if element == 'bool' else _NAMES[element]}{lanes}"


def mask_name(dtype: str) -> str:
    """Return the result type of comparing vectors of ``dtype``."""
    info = dt.parse(dtype)
    return f"{ {8: 'char', 16: 'short', 32: 'int', 64: 'long'}[info.bits] }{info.lanes}".replace(" ", "")


def _min_max(dtype: str, symbol: str, name: str) -> str:
    t = type_name(dtype)
    return f"{t} {name}({t} a, {t} b) {{ return (a {symbol} b || a != a) ? a : b; }}"  # NaN where one of them is


def _floor_division(dtype: str, name: str, result: str) -> str:
    t = type_name(dtype)
    return (
        f"{t} {name}({t} a, {t} b) {{\n"
        f"  const {t} q = a / b, r = a - q * b;\n"
        f"  return (r != ({t})0 && (r ^ b) < ({t})0) ? {result.format(t=t)};\n}}"
    )


def _sigmoid(dtype: str, name: str) -> str:
    t = type_name(dtype)
    return (
        f"{t} {name}({t} x) {{\n  const {t} e = exp(-fabs(x));\n  return (x < ({t})0 ? e : ({t})1) / (({t})1 + e);\n}}"
    )


def _tail(dtype: str, name: str) -> str:
    t = type_name(dtype)
    return f"{t} {name}({t} x) {{ return ({t})0.5f * erfc(x * ({t})0.70710678118654752{_suffix(dtype)}); }}"


def _suffix(dtype: str) -> str:
    return "" if dt.bits(dtype) == 64 else "f"


def _with_half(name: str, has: str, lacks: str) -> str:
    """A definition by whether the device has float16."""
    return f"#ifdef cl_khr_fp16\n{has}\n#else\n{lacks}\n#endif"


def _half_type(lanes: int) -> str:
    n = "" if lanes == 1 else str(lanes)
    name = f"tw_float16{f'x{lanes}' if lanes > 1 else ''}"
    return _with_half(name, f"typedef half{n} {name};", f"typedef float{n} {name};")


def _round(dtype: str, name: str) -> str:
    """Define ``name``, which rounds a value of ``dtype`` to float16."""
    n = "" if dt.lanes(dtype) == 1 else str(dt.lanes(dtype))
    t, lanes = type_name(dtype), dt.lanes(dtype)
    rounded = (
        f"float{n} {name}({t} x) {{\n  ushort bits[{lanes}];\n  vstore_half{n}_rte(x, 0, (half*)bits);\n"
        f"  return vload_half{n}(0, (const half*)bits);\n}}"
    )
    return _with_half(name, f"#define {name}(x) convert_half{n}_rte(x)", rounded)


def _load(lanes: int, name: str) -> str:
    has = "((p)[i])" if lanes == 1 else f"vload{lanes}(0, (const space half*)(p) + (i))"
    n = "" if lanes == 1 else str(lanes)
    return _with_half(
        name,
        f"#define {name}(space, p, i) {has}",
        f"#define {name}(space, p, i) vload_half{n}(0, (const space half*)(p) + (i))",
    )


def _store(lanes: int, name: str) -> str:
    has = "(p)[i] = (v)" if lanes == 1 else f"vstore{lanes}(v, 0, (space half*)(p) + (i))"
    n = "" if lanes == 1 else str(lanes)
    return _with_half(
        name,
        f"#define {name}(space, v, p, i) {has}",
        f"#define {name}(space, v, p, i) vstore_half{n}(v, 0, (space half*)(p) + (i))",
    )


def _atomic_add(dtype: str, space: str, name: str) -> str:
    """Define an atomic add by compare-and-exchange; it returns the previous value."""
    t, bits = type_name(dtype), dt.bits(dtype)
    u, swap = ("uint", "atomic_cmpxchg") if bits == 32 else ("ulong", "atom_cmpxchg")
    p = f"volatile __{space} {u}*"
    return (
        f"{t} {name}(volatile __{space} {t}* p, {t} v) {{\n"
        f"  {u} seen, now = *({p})p;\n"
        f"  do {{\n    seen = now;\n    now = {swap}(({p})p, seen, as_{u}(as_{t}(seen) + v));\n"
        f"  }} while (now != seen);\n  return as_{t}(seen);\n}}"
    )


_BFLOAT = {
    "tw_bfloat_to_float": "float tw_bfloat_to_float(ushort x) { return as_float((uint)x << 16); }",
    "tw_float_to_bfloat": (
        "ushort tw_float_to_bfloat(float x) {\n  const uint bits = as_uint(x);\n"
        "  if (x != x) return (ushort)((bits >> 16) | 0x40u);\n"
        "  return (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);\n}"
    ),
    "tw_q_multiply_shift": (
        "int tw_q_multiply_shift(int x, int y, int q, int s) {\n"
        "  return (int)(((long)x * y + (1L << (q - s - 1))) >> (q - s));\n}"
    ),
    "tw_float16_memory": _with_half("", "typedef half tw_float16_memory;", "typedef ushort tw_float16_memory;"),
    "tw_float16_of_bits": _with_half(
        "",
        "#define tw_float16_of_bits(x) as_half(x)",
        "float tw_float16_of_bits(ushort x) { return vload_half(0, (const half*)&x); }",
    ),
    "tw_bits_of_float16": _with_half(
        "",
        "#define tw_bits_of_float16(x) as_ushort(x)",
        "ushort tw_bits_of_float16(float x) {\n  ushort bits;\n  vstore_half(x, 0, (half*)&bits);\n  return bits;\n}",
    ),
}
_MADE: list[tuple[str, Callable[..., str]]] = [
    (r"tw_min_(float\w+)", lambda m: _min_max(m[1], "<=", m[0])),
    (r"tw_max_(float\w+)", lambda m: _min_max(m[1], ">=", m[0])),
    (r"tw_floordiv_(\w+)", lambda m: _floor_division(m[1], m[0], "q - ({t})1 : q")),
    (r"tw_floormod_(\w+)", lambda m: _floor_division(m[1], m[0], "r + b : r")),
    (r"tw_sigmoid_(\w+)", lambda m: _sigmoid(m[1], m[0])),
    (r"tw_normal_tail_(\w+)", lambda m: _tail(m[1], m[0])),
    (r"tw_to_float16_(\w+)", lambda m: _round(m[1], m[0])),
    (r"tw_load_float16(?:x(\d+))?", lambda m: _load(int(m[1] or 1), m[0])),
    (r"tw_store_float16(?:x(\d+))?", lambda m: _store(int(m[1] or 1), m[0])),
    (r"tw_atomic_add_(global|local)_(\w+)", lambda m: _atomic_add(m[2], m[1], m[0])),
    (r"tw_float16(?:x(\d+))?", lambda m: _half_type(int(m[1] or 1))),
]
_USE = re.compile(r"\btw_\w+")


@cache
def _definition(name: str) -> str:
    if name in _BFLOAT:
        return _BFLOAT[name]
    for pattern, make in _MADE:
        match = re.fullmatch(pattern, name)
        if match is not None:
            return make(match)
    raise KeyError(name)


def definitions(texts: Iterable[str]) -> list[str]:
    """Return the helpers that ``texts`` need, each after those that it needs itself."""
    found: dict[str, str] = {}

    def need(text: str, of: str = "") -> None:
        for name in _USE.findall(text):
            if name not in found and name != of:
                definition = _definition(name)
                need(definition, name)
                found[name] = definition

    for text in texts:
        need(text)
    return list(found.values())


def extensions(text: str) -> list[str]:
    """Return the pragmas for features that ``text`` uses beyond the language's core."""
    wanted = []
    if re.search(r"\btw_\w*float16|\bhalf\b", text):
        wanted.append("#ifdef cl_khr_fp16\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#endif")
    if re.search(r"\bdouble\d*\b", text):
        wanted.append("#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif")
    if "atom_" in text:
        wanted.append("#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable")
    return wanted
