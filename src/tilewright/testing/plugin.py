"""A plug-in for pytest: ``pytest_plugins = ["tilewright.testing.plugin"]`` in a conftest.py.

A test that takes ``target`` runs for every enabled target (see :mod:`tilewright.testing.targets`), ``dev`` is its
device; fixtures of ``parameters`` change together.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tilewright.runtime import device
from tilewright.runtime.device import Device
from tilewright.testing import targets


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark that :func:`tilewright.testing.uses_gpu` sets."""
    config.addinivalue_line("markers", "gpu: uses a GPU where there is one")


@pytest.fixture
def dev(target: Any) -> Device:
    """The device of the test's target."""
    return device(target)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give ``target`` and the fixtures of ``parameters`` their values."""
    _parametrize_groups(metafunc)
    named = {
        name.strip()
        for mark in metafunc.definition.iter_markers("parametrize")
        for name in (mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0])
    }
    if "target" in metafunc.fixturenames and "target" not in named:
        excluded = getattr(metafunc.function, "tvm_excluded_targets", ())
        failing = getattr(metafunc.function, "tvm_known_failing_targets", ())
        values = []
        for target, _ in targets.enabled_targets():
            kind = target.split()[0]
            marks = [pytest.mark.xfail(reason=f"known to fail on {kind}")] if kind in failing else []
            if kind not in excluded:
                values.append(pytest.param(target, marks=marks))
        metafunc.parametrize("target", values)


def _parametrize_groups(metafunc: pytest.Metafunc) -> None:
    groups: dict[int, list[tuple[str, Any, Any]]] = defaultdict(list)
    for name, definitions in metafunc.definition._fixtureinfo.name2fixturedefs.items():
        found = targets.group_of(definitions[-1].func)
        if found is not None:
            group, values, ids = found
            groups[group].append((name, values, ids))
    for members in groups.values():
        names = [name for name, _, _ in members]
        sets = list(zip(*(values for _, values, _ in members), strict=True))
        metafunc.parametrize(names, sets, indirect=True, ids=members[0][2])
