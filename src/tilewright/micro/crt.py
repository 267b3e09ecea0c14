"""The sources of what programs on boards need beside a compiled network, with TVM 0.8's names and folders.

==================================================  ================================================================
``include``                                         headers: ``tvm/runtime/crt/...``, TVM's C API, DLPack
``src/runtime/crt/memory/stack_allocator.c``        memory of one array: ``StackMemoryManager_Init`` and its kin
``src/runtime/crt/common/crt_backend_api.c``        ``TVMBackendAllocWorkspace`` over ``TVMPlatformMemoryAllocate``,
                                                    which the program defines
``template/crt_config-template.h``                  the board's choices
==================================================  ================================================================
"""

from __future__ import annotations

from tilewright.runtime._ffi import find_library


class CrtNotFoundError(Exception):
    """The sources are not installed."""


def get_standalone_crt_dir() -> str:
    """Return the folder of the sources.

    Raises
    ------
    CrtNotFoundError : the installation has none
    """
    folder = find_library().parent / "crt"
    if not folder.is_dir():
        raise CrtNotFoundError(
            f"{folder} is missing: install the package again, or from its sources make .venv/.runtime"
        )
    return str(folder)
