"""``tilewright opt``: a module before and after passes, as text."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from tilewright.driver.options import check_is_file, parse_input_shapes
from tilewright.driver.pass_options import parse_pass_config
from tilewright.driver.report import print_text
from tilewright.ir.errors import TilewrightError
from tilewright.ir.json import load_json
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import build_module, transform
from tilewright.relay.expr import Function
from tilewright.relay.frontend import import_model
from tilewright.relay.frontend.door import find_frontend
from tilewright.relay.text.parser import fromtext
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.verify import VerifyIR, verify_module
from tilewright.target.target import Target
from tilewright.tir import transform as tir_transform

_ROADS: dict[str, Callable[[], list[Pass]]] = {
    "optimize": build_module.optimization_passes,
    "fuse": build_module.fusion_passes,
}


@dataclass(frozen=True)
class OptOptions:
    """Options of the command: passes, file and settings."""

    file: Path
    passes: list[str]
    target: str = "llvm"
    opt_level: int = 3
    input_shape: list[str] | None = None
    pass_config: list[str] | None = None
    verify: bool = False
    output: Path | None = None


def optimize_file(options: OptOptions, verbose: bool = False) -> None:
    """Print a module after passes; with ``verbose`` after each of them."""
    passes = [item for text in options.passes for item in parse_passes(text)]
    mod = InferType()(read_module(options.file, options.input_shape))
    context = PassContext(opt_level=options.opt_level, config=parse_pass_config(options.pass_config))
    if options.verify:
        verify_module(mod)
        context.instruments = [VerifyIR()]
    with context, Target(options.target):
        for item in passes:
            mod = item(mod)
            if verbose:
                print_text(f"# after {item.info.name}\n{mod.astext(show_meta_data=False)}\n")
    if options.output is not None:
        options.output.write_text(mod.astext())
    elif not verbose:
        print_text(mod.astext(show_meta_data=False))


def read_module(path: Path, input_shape: list[str] | None = None) -> IRModule:
    """Read the module of a file: a model by its suffix; Relay text, JSON (``save_json``) or ONNX by its content.

    Raises:
        TilewrightError: it is none of them; the message names the error for the most likely format.
    """
    check_is_file(path)
    with open(path, "rb") as file:
        head = file.read(4096)
    text = _text_of(head)
    by_suffix = find_frontend(path) is not None
    if text is None or by_suffix:
        mod, params = import_model(path, parse_input_shapes(input_shape), None if by_suffix else "onnx")
        mod["main"] = build_module.with_params(mod["main"], params)
        return mod
    if input_shape:
        raise typer.BadParameter("--input-shape is for ONNX models and the like; Relay text and JSON have their shapes")
    source = path.read_text()
    if not text.lstrip().startswith("{"):
        return fromtext(source, str(path))
    loaded = load_json(source)
    if isinstance(loaded, Function):
        loaded = IRModule.from_expr(loaded)
    if not isinstance(loaded, IRModule):
        raise TilewrightError(f"{path}: holds a {type(loaded).__name__}, not a module or a function")
    return loaded


def _text_of(head: bytes) -> str | None:
    """The beginning of a text, or None of a binary file (an ONNX model has bytes below the space at once)."""
    text = head.decode("utf-8", errors="replace")
    return None if any(c < " " and c not in "\t\n\r\f" for c in text) else text


def parse_passes(text: str) -> list[Pass]:
    """Parse ``FuseOps(fuse_opt_level=2),InferType`` to passes.

    Names are those of ``relay.transform``, then of ``tir.transform``; ``optimize`` and ``fuse`` are the passes that
    ``relay.build`` runs. Arguments are literals of Python.
    """
    try:
        body = ast.parse(f"[{text}]", mode="eval").body
    except SyntaxError:
        body = None
    if not isinstance(body, ast.List) or not body.elts:
        raise typer.BadParameter(f"--pass {text}: takes passes with commas between, such as FuseOps(2),InferType")
    return [item for node in body.elts for item in _passes_of(node, text)]


def _passes_of(node: ast.expr, text: str) -> list[Pass]:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not isinstance(call.func, ast.Name) or any(keyword.arg is None for keyword in call.keywords):
        raise typer.BadParameter(f"--pass {text}: {ast.unparse(node)} is no pass")
    name = call.func.id
    try:
        args = [ast.literal_eval(arg) for arg in call.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except ValueError:
        raise typer.BadParameter(f"--pass {text}: the arguments of {name} are literals, such as 2 or 'llvm'") from None
    if name in _ROADS:
        if args or named:
            raise typer.BadParameter(f"--pass {text}: {name} takes no arguments")
        return _ROADS[name]()
    return [_made(name, args, named)]


def _made(name: str, args: list[Any], named: Mapping[str, Any]) -> Pass:
    makers = _makers()
    if name not in makers:
        by_lower = {known.lower(): known for known in makers}
        near = [by_lower[known] for known in difflib.get_close_matches(name.lower(), by_lower, n=3)]
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(sorted(makers))}"
        raise typer.BadParameter(f"there is no pass {name!r}{hint}")
    make = makers[name]
    signature = inspect.signature(make)
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        takes = ", ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in signature.parameters.values()
        )
        raise typer.BadParameter(f"{name}({takes}): {error}") from None
    made = make(*args, **named)
    if not isinstance(made, Pass):
        raise typer.BadParameter(f"{name} makes a {type(made).__name__}, not a pass")
    return made


def _makers() -> dict[str, Callable[..., Any]]:
    """Return pass constructors by name; Relay's win over TIR's."""
    found = {name: getattr(tir_transform, name) for name in tir_transform.__all__}
    found |= {name: getattr(transform, name) for name in (*transform.__all__, "LowerTE")}
    other = (PassContext,)
    return {n: f for n, f in found.items() if n[0].isupper() and callable(f) and f not in other} | dict(_ROADS)
