"""The C function of an external region: it takes up its constants once, and works in memory of its own.

``c_region`` frames what computes the region; ``c_tensor`` declares a tensor there. Constants are handed over as
arrays, so that their size does not count. In the body ``given`` are the arguments, ``SYMBOL_constants`` the constants,
``memory`` the region's own bytes; what fails sets ``status`` and goes to ``done``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.runtime.dtype import DataType, to_native

ALIGNMENT = 64  # bytes, of a region's memory and of each tensor there

_REGION = """\
#include <stdlib.h>
#ifdef __cplusplus
extern "C" {{
#endif
static DLTensor* {symbol}_constants[{num_constants}];

{call}
TVM_DLL int32_t __init_{symbol}(void* args, int32_t* c, int32_t count, void* r, int32_t* rc, void* h) {{
  (void)c, (void)r, (void)rc, (void)h;
  for (int32_t i = 0; i < count; ++i) {symbol}_constants[i] = (DLTensor*)((TVMValue*)args)[i].v_handle;
  return 0;
}}

TVM_DLL int32_t {symbol}(void* args, int32_t* c, int32_t count, void* r, int32_t* rc, void* h) {{
  (void)c, (void)count, (void)r, (void)rc, (void)h;
  TVMValue* given = (TVMValue*)args;
  int32_t status = 0;
  char* memory = (char*)aligned_alloc({alignment}, {nbytes});
  if (memory == NULL) {{
    TVMAPISetLastError("{symbol}: out of memory");
    return -1;
  }}
{body}
done:
  free(memory);
  return status;
}}
#ifdef __cplusplus
}}
#endif
"""


def c_region(symbol: str, num_constants: int, nbytes: int, call: str, body: Sequence[str]) -> str:
    """The C text of a region's function.

    Parameters
    ----------
    symbol : its name
    num_constants : how many constants ``__init_SYMBOL`` is given
    nbytes : bytes of its own memory, a multiple of ``ALIGNMENT``
    call : the text of the function that ``body`` calls operators by
    body : lines that compute the results
    """
    return _REGION.format(
        symbol=symbol, num_constants=max(num_constants, 1), alignment=ALIGNMENT, nbytes=max(nbytes, ALIGNMENT),
        call=call, body="\n".join(body),
    )  # fmt: skip


def aligned(nbytes: int) -> int:
    """The next multiple of ``ALIGNMENT``."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def c_tensor(name: int, shape: Sequence[int], dtype: str, data: str) -> list[str]:
    """Lines that declare the tensor ``t<name>``, which lies at ``data``."""
    native = to_native(DataType(dtype))
    extents = ", ".join(map(str, shape)) or "0"
    type_ = f"{{{native.code}, {native.bits}, {native.lanes}}}"
    return [
        f"  static int64_t s{name}[] = {{{extents}}};",
        f"  DLTensor t{name} = {{{data}, {{kDLCPU, 0}}, {len(shape)}, {type_}, s{name}, NULL, 0}};",
    ]
