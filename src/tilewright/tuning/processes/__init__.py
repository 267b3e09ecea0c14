"""Measuring candidates: programs that may be slow to build, hang, crash or compute nonsense, in processes of their own.

process.py   a worker process, messages to and from it      pool.py         several of them, with time-outs
local.py     what is asked of a run on this machine         run_worker.py   the process that runs
boards.py    the same on boards of a tracker                networks.py     whole networks in turns
pinning.py   threads, each on a core                        loaded.py       what a module loader opens

A candidate never harms the tuner: it is built in a fork of the tuner, which has its templates and tasks and may die,
and runs in a process with the runtime only. Messages are JSON.
"""

from tilewright.tuning.processes.local import LocalRuns, RunAnswer, RunRequest
from tilewright.tuning.processes.pool import Outcome, Pool
from tilewright.tuning.processes.process import Worker, fork_worker, start_worker

__all__ = [
    "LocalRuns",
    "Outcome",
    "Pool",
    "RunAnswer",
    "RunRequest",
    "Worker",
    "fork_worker",
    "start_worker",
]
