"""Where AMX's tiles are configured: once around the loops that use them.

Before and after, for the tasks of a parallel loop, or a serial one (configuring and releasing tiles takes 60 to 80 ns,
four products of tiles 18)::

    for (i, begin, end) {                                       ldtilecfg("0100...")
      attr ["tiles"] "tile_configuration" = "0100..." {         for (i, begin, end) {
        ...                                            ->         ...
      }                                                         }
    }                                                           tilerelease()

A loop stays as it is that has several configurations, starts tasks or calls functions of others, which may use tiles.
"""

from __future__ import annotations

from tilewright.tir.expr import Call
from tilewright.tir.stmt import AttrStmt, For, ForKind, Stmt
from tilewright.tir.visitor import post_order_visit

KEY = "tile_configuration"
_OF_OTHERS = ("packed", "extern")  # calls whose functions may use tiles


def uses_tiles(body: Stmt) -> bool:
    """Return whether ``body`` configures tiles."""
    keys: set[str] = set()
    post_order_visit(body, lambda node: keys.add(node.attr_key) if isinstance(node, AttrStmt) else None)
    return KEY in keys


def configuration_of(body: Stmt) -> str | None:
    """Return the configuration of all tiles in ``body``, in hexadecimal digits; None where it is not to be hoisted."""
    found: set[str] = set()
    apart: list[object] = []

    def visit(node: object) -> None:
        match node:
            case AttrStmt() if node.attr_key == KEY:
                found.add(str(node.value.value))  # type: ignore[attr-defined]
            case For() if node.kind == ForKind.PARALLEL:
                apart.append(node)
            case Call() if any(word in node.op.name for word in _OF_OTHERS):
                apart.append(node)

    post_order_visit(body, visit)
    return found.pop() if len(found) == 1 and not apart else None


def configuration(text: str) -> str:
    """Return LLVM's type and literal of the 64 bytes of a configuration."""
    return f"[64 x i8] [{', '.join(f'i8 {byte}' for byte in bytes.fromhex(text))}]"
