"""A plug-in of pytest: the process that ``runs.run_cold`` starts."""

from __future__ import annotations

import json
import os

import pytest
from tests.mutation.runs import Task, Watch

WATCH = Watch(Task(**json.loads(os.environ["TILEWRIGHT_MUTATION_TASK"])))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(WATCH)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if WATCH.verdict.result == "survived":
        WATCH.run(session.config, session.items)
    os._exit(0)
