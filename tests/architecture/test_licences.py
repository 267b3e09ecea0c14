"""What Tilewright installs is free to use, change and sell: the licences of its dependencies, and of theirs."""

from __future__ import annotations

import importlib.util
import sys
from email.message import Message
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[2] / "packaging" / "licences.py"
_SPEC = importlib.util.spec_from_file_location("licences", _PATH)
licences = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = licences  # which dataclasses look up
_SPEC.loader.exec_module(licences)


def test_dependencies_and_extras_have_permissive_licences() -> None:
    packages, _ = licences.installed(licences.declared(extras=True))
    assert {"numpy", "llvmlite", "onnx", "protobuf"} <= {package.name for package in packages}
    assert not licences.refused(packages), "name a reason in EXCEPTIONS of packaging/licences.py, or do without it"


@pytest.mark.parametrize(
    ("licence", "free"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND (MIT OR GPL-3.0-only)", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("(MIT OR BSD-3-Clause) AND GPL-2.0-only", False),
        ("GPL-3.0-or-later", False),
        ("MIT AND GPL-2.0-only", False),
        ("Proprietary", False),
        ("none", False),
        ("", False),
    ],
)
def test_an_expression_is_permissive_where_what_holds_is(licence: str, free: bool) -> None:
    assert licences.Package("p", "1", licence).is_permissive is free


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ({"License-Expression": "MIT"}, "MIT"),
        ({"License": "3-Clause BSD License"}, "BSD-3-Clause"),
        ({"Classifier": "License :: OSI Approved :: Apache Software License"}, "Apache-2.0"),
        ({"License": "Apache v2.0", "Classifier": "License :: Other/Proprietary License"}, "Apache-2.0"),
        ({"License": "GNU GPL\nand more"}, "GNU GPL"),
        ({}, "none"),
    ],
)
def test_words_of_packages_are_understood(head: dict[str, str], licence: str) -> None:
    message = Message()
    for name, value in head.items():
        message[name] = value
    assert licences.licence_of(message) == licence
