"""The process that builds candidates on a worker of a cluster.

A request is JSON: ``task`` (name, args, target, host, modules that register its template), ``config`` (None: the
untuned choice), ``path`` of the library, ``options`` of the build. With ``prepare`` nothing is built; without a path
the lowered program is told.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import OrderedDict
from typing import Any

from tilewright.autotvm.lines import args_from_json
from tilewright.autotvm.task.task import Task, create
from tilewright.relay.backend import kernel_task
from tilewright.target.workers import compile_in_this_process
from tilewright.tuning.measure import build as building
from tilewright.tuning.processes.process import serve

_KNOWN = 64  # tasks whose spaces are kept

assert kernel_task.TEMPLATE  # registered on import, as the templates of operators are


class _Builder:
    def __init__(self) -> None:
        self._tasks: OrderedDict[str, Task] = OrderedDict()

    def handle(self, request: dict[str, Any]) -> Any:
        """Build, or return a program's text."""
        task = self._task(request["task"])
        if request.get("prepare"):
            return None
        config = building.config_from_json(task, request["config"])
        if request["path"] is None:
            return building.lowered_text(task, config)
        return building.build_candidate(task, config, request["path"], request["options"], None)

    def _task(self, data: dict[str, Any]) -> Task:
        key = json.dumps(data, sort_keys=True)
        if key not in self._tasks:
            for module in data["modules"]:
                importlib.import_module(module)
            self._tasks[key] = create(data["name"], args_from_json(data["args"]), data["target"], data["host"])
            while len(self._tasks) > _KNOWN:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(key)
        return self._tasks[key]


def main() -> None:
    """Serve on the descriptors that are the arguments."""
    compile_in_this_process()  # a worker has as many builders as threads
    serve(_Builder().handle, int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
