"""The C function of an external region, with its constants and its own workspace.

``c_region`` writes the frame around the body; ``c_tensor`` declares a tensor in it. Constants are passed as arrays, so
their size is no limit. In the body, ``given`` are the arguments, ``SYMBOL_constants`` the constants, and ``memory`` the
region's workspace; on failure set ``status`` and go to ``done``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.relay.op.views import ALIGNMENT
from tilewright.runtime.dtype import DataType, to_native

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
    """Return the C text of a region's function.

    Parameters
    ----------
    symbol : its name
    num_constants : number of constants that ``__init_SYMBOL`` takes
    nbytes : bytes of its workspace, a multiple of ``ALIGNMENT``
    call : the text of the function through which ``body`` calls operators
    body : lines that compute the results
    """
    return _REGION.format(
        symbol=symbol, num_constants=max(num_constants, 1), alignment=ALIGNMENT, nbytes=max(nbytes, ALIGNMENT),
        call=call, body="\n".join(body),
    )  # fmt: skip


def c_tensor(name: int, shape: Sequence[int], dtype: str, data: str) -> list[str]:
    """Return the lines that declare the tensor ``t<name>`` at ``data``."""
    native = to_native(DataType(dtype))
    extents = ", ".join(map(str, shape)) or "0"
    type_ = f"{{{native.code}, {native.bits}, {native.lanes}}}"
    return [
        f"  static int64_t s{name}[] = {{{extents}}};",
        f"  DLTensor t{name} = {{{data}, {{kDLCPU, 0}}, {len(shape)}, {type_}, s{name}, NULL, 0}};",
    ]
