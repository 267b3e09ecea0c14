"""A plug-in of pytest for ``make test-oldest`` and ``make test-newest``: a tenth of the tests, and all examples.

Which tests depends on their names alone, so that two runs run the same ones. A test that needs a package that this
environment does not have is skipped.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Generator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import onnx
import pytest

_ALWAYS = "tests/examples/"
# Their cases and what is expected come from onnx itself: releases before 1.20 lack operators, and give other types.
# The model of the large builds has RMSNormalization, of opset 23.
_OF_NEWEST_ONNX = ("tests/onnx_suite/", "tests/random_operators/", "tests/driver/test_large_builds.py")
_ABSENT = re.compile(r"No module named '(\w+)")
_SKIPPED_FILE = re.compile(r"cannot import name '\w+' from '(tests\.[\w.]+)'")


def _is_product(module: str) -> bool:
    """Whether Tilewright itself, or something that it cannot do without, lacks a module."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=]", text)[0].lower() for text in project["dependencies"]} | {"tilewright", "tests"}
    names = {name.lower() for name in packages_distributions().get(module, [module])}
    return bool(names & needed)


def _lacks(report: pytest.CollectReport | pytest.TestReport) -> str | None:
    """Return what a failed report says that this environment lacks: a package, or a file of tests skipped for one."""
    text = str(report.longrepr) if report.failed else ""
    found = _ABSENT.search(text)
    if found is not None and not _is_product(found[1]):
        return found[1]
    needed = _SKIPPED_FILE.search(text) if found is None and isinstance(report, pytest.CollectReport) else None
    return needed and needed[1]


def _skipped(report: Any, module: str) -> Any:
    report.outcome, report.longrepr = "skipped", (str(report.fspath), 0, f"Skipped: needs {module}")
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = _OF_NEWEST_ONNX if onnx.defs.onnx_opset_version() < 25 else ()
    drawn = [item for item in items if item.nodeid.startswith(_ALWAYS) or zlib.crc32(item.nodeid.encode()) % 10 == 0]
    kept = [item for item in drawn if not item.nodeid.startswith(left_out)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    module = _lacks(report)
    return report if module is None else _skipped(report, module)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    module = _lacks(report)
    return report if module is None else _skipped(report, module)
