"""Parameters in the code (``-link-params``): arrays of C, and the function that finds them by their storage.

A graph executor calls the packed function ``_lookup_linked_param`` with the number of a parameter's storage, and gets
its address, or NULL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt

LOOKUP = "_lookup_linked_param"
_A_ROW = 8

_FUNCTION = """
#ifdef __cplusplus
extern "C"
#endif
TVM_DLL int32_t {name}(void* args, int32_t* type_codes, int32_t num_args, void* result, int32_t* result_code,
                       void* resource) {{
  void* found = NULL;
  (void)type_codes, (void)num_args, (void)resource;
  switch (((TVMValue*)args)[0].v_int64) {{
{cases}
  }}
  ((TVMValue*)result)->v_handle = found;
  *result_code = found == NULL ? kTVMNullptr : kTVMOpaqueHandle;
  return 0;
}}
"""


def linked_params(params: Iterable[tuple[int, str, np.ndarray[Any, Any], str]]) -> str:
    """Return the C text of parameters: of each the number of its storage, its name, elements and data type."""
    arrays, cases = [], []
    for storage, name, value, dtype in params:
        arrays.append(_array(name, value.reshape(-1), dtype))
        cases.append(f"    case {storage}: found = (void*)__tvm_param__{name}; break;")
    return "\n".join([*arrays, _FUNCTION.format(name=LOOKUP, cases="\n".join([*cases, "    default: break;"]))])


def _array(name: str, flat: np.ndarray[Any, Any], dtype: str) -> str:
    element, texts = _elements(flat, dtype)
    rows = ",\n".join("  " + ", ".join(texts[i : i + _A_ROW]) for i in range(0, len(texts), _A_ROW))
    declared = f"static const {element} __tvm_param__{name}[{max(len(texts), 1)}] = {{"
    return f"#ifdef __GNUC__\n__attribute__((aligned(64)))\n#endif\n{declared}\n{rows or '  0'}\n}};"


def _elements(flat: np.ndarray[Any, Any], dtype: str) -> tuple[str, list[str]]:
    """Return the type of C, and the elements in hexadecimal, which is exact; others than C's types are their bits."""
    if dtype in ("float32", "float64"):
        return "float" if dtype == "float32" else "double", [_float(x) for x in flat.tolist()]
    bits = 8 * dt.nbytes(dtype)
    kind = "int" if dtype.startswith("int") else "uint"
    if dtype not in (f"int{bits}", f"uint{bits}"):
        flat = flat.view(f"uint{bits}")
    sign, width = ("+", bits // 4 + 3) if kind == "int" else ("", bits // 4 + 2)
    return f"{kind}{bits}_t", [f"{int(x):{sign}#0{width}x}" for x in flat.tolist()]


def _float(x: float) -> str:
    if x != x:
        return "NAN"
    if x in (float("inf"), float("-inf")):
        return "INFINITY" if x > 0 else "-INFINITY"
    before, _, after = x.hex().partition("p")
    return f"{before.rstrip('0')}p{after}"
