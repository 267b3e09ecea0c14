"""``tilewright cache``: the compiled kernels on disk."""

from __future__ import annotations

from tilewright.driver.options import format_bytes
from tilewright.driver.report import print_json, print_rows, print_text
from tilewright.runtime import environment
from tilewright.runtime.error import TVMError
from tilewright.target.cache import KernelCache, cache_directory


def show_cache(as_json: bool) -> None:
    """Print where the cache is, what it holds, and its limit."""
    folder, limit = cache_directory(), environment.CACHE_SIZE.read() << 20
    entries, size = KernelCache(folder, limit).size()
    if as_json:
        print_json(
            {"folder": str(folder), "kernels": entries, "bytes": size, "limit_bytes": limit,
             "enabled": environment.CACHE.read()}
        )  # fmt: skip
        return
    rows = [
        ("folder", str(folder)),
        ("kernels", str(entries)),
        ("size", f"{format_bytes(size)} of {format_bytes(limit)}"),
    ]
    if not environment.CACHE.read():
        rows.append(("state", f"off ({environment.CACHE.name}=0)"))
    print_rows(rows)


def clear_cache(quiet: bool) -> None:
    """Remove every kernel."""
    cache = KernelCache(cache_directory(), 0)
    entries, size = cache.size()
    cache.clear()
    left, _ = cache.size()
    if left:
        raise TVMError(f"cannot remove {left} of {entries} kernels in {cache.directory}; are they another user's?")
    if not quiet:
        print_text(f"removed {entries} kernels, {format_bytes(size)}, from {cache.directory}")
