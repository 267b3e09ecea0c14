"""C texts about the parts of a program's workspace: one named ``workspace``, or those of ``-workspace-pools``."""

from __future__ import annotations

from tilewright.runtime.executor.aot import AotLayout, AotPool

_CHECK = """\
  if ({pool} == NULL) return {NAME}_NULL;
  if ({pool}_bytes < {NAME}_{POOL}_BYTES) return {NAME}_SMALL_WORKSPACE;
  if ((uintptr_t){pool} % {NAME}_ALIGNMENT != 0) return {NAME}_UNALIGNED;
"""
_ARRAY = """\
static union {{
  uint8_t bytes[{NAME}_{POOL}_BYTES + {NAME}_ALIGNMENT];
  double alignment;
}} {pool}_memory;
"""
_POINTER = """\
  uint8_t* {pool} = {pool}_memory.bytes + (-(uintptr_t){pool}_memory.bytes & ({NAME}_ALIGNMENT - 1));
"""
_TAKE = """\
  void* {pool} = TVMBackendAllocWorkspace(1, 0, {nbytes}, 1, 8);
"""
_GIVE = "  if ({pool} != NULL && TVMBackendFreeWorkspace(1, 0, {pool}) != 0) status = -1;\n"


def pool_texts(layout: AotLayout, name: str) -> dict[str, str]:
    """Return the texts that templates have of a workspace.

    ``pool_sizes`` are macros, ``pool_parameters`` and ``pool_arguments`` those of the function, ``pool_checks`` and
    ``pool_unused`` lines of it; ``pool_arrays`` and ``pool_pointers`` an aligned array for each part.
    """
    pools = layout.pools
    return {
        "pool_sizes": "\n".join(_format(_size(pool), pool, name) for pool in pools),
        "pool_parameters": ", ".join(f"void* {p.name}, size_t {p.name}_bytes" for p in pools),
        "pool_arguments": ", ".join(_format("{pool}, {NAME}_{POOL}_BYTES", p, name) for p in pools),
        "pool_checks": "".join(_format(_CHECK, pool, name) for pool in pools if pool.nbytes),
        "pool_unused": "".join(f"  (void){pool.name}_bytes;\n" for pool in pools),
        "pool_arrays": "".join(_format(_ARRAY, pool, name) for pool in pools),
        "pool_pointers": "".join(_format(_POINTER, pool, name) for pool in pools),
    }


def platform_texts(layout: AotLayout, name: str) -> dict[str, str]:
    """Return the texts that take the parts from the platform, and give them back in turn; none for empty ones."""
    used = [pool for pool in layout.pools if pool.nbytes]
    empty = "".join(f"  void* {pool.name} = NULL;\n" for pool in layout.pools if not pool.nbytes)
    return {
        "take": empty + "".join(_format(_TAKE, pool, name) for pool in used),
        "taken": " && ".join(f"{pool.name} != NULL" for pool in used) or "1",
        "give": "".join(_format(_GIVE, pool, name) for pool in reversed(used)),
        "backend": '#include "tvm/runtime/c_backend_api.h"\n' if used else "",
    }


def _size(pool: AotPool) -> str:
    least = "" if pool.nbytes else "  /* the network needs none: the pointer may be NULL */"
    return f"#define {{NAME}}_{{POOL}}_BYTES {max(pool.nbytes, 1)}{least}"


def _format(text: str, pool: AotPool, name: str) -> str:
    return text.format(pool=pool.name, POOL=pool.name.upper(), NAME=name.upper(), nbytes=pool.nbytes)
