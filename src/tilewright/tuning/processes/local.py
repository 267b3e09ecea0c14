"""Runs on this machine: requests, answers, and the process that answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from tilewright.tuning.processes.pool import Outcome, Pool
from tilewright.tuning.processes.process import start_worker

_MOST_DRIFT = 1.5  # what changes more than that is no drift of the machine but noise
Argument = tuple[Sequence[int], str]  # shape, element type


@dataclass(frozen=True)
class RunRequest:
    """One library to run.

    Parameters
    ----------
    library : path of an exported library
    arguments : shape and element type of each argument of the function, results last
    function : its name; "" for the library's entry
    device : name of the device type
    number, repeat : ``repeat`` times the mean of ``number`` calls is taken, after one call that does not count
    min_repeat_ms : ``number`` grows until a repeat takes as long
    flush : whether all arguments but the first leave the caches before each repeat
    inputs : an ``.npz`` file with the first arguments' values, in order; others are made up, the same for equal shapes
    outputs : which arguments are results
    compare_to : an ``.npz`` file with the expected results; "" checks nothing
    save_results : the results are written to this ``.npz`` file
    tolerance : of floats, relative to the largest expected value of a result
    reference, reference_arguments : a library that is run before and after, to measure the machine's slowdown
    reference_seconds : the reference's time on an idle machine; 0 for that of its first run
    """

    library: str
    arguments: Sequence[Argument]
    function: str = ""
    device: str = "cpu"
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    flush: bool = False
    inputs: str = ""
    outputs: Sequence[int] = (-1,)
    compare_to: str = ""
    save_results: str = ""
    tolerance: tuple[float] = (2e-3,)
    reference: str = ""
    reference_arguments: Sequence[Argument] = ()
    reference_seconds: float = 0.0


@dataclass(frozen=True)
class RunAnswer:
    """The result of a run: seconds by repeat, differences of the results, and the reference kernel's
    seconds around it.
    """

    costs: tuple[float, ...]
    wrong: str | None = None
    reference: tuple[float, ...] = ()


class LocalRuns:
    """Runs libraries in order in a process of their own, which is replaced when it dies or times out.

    If there is a reference kernel, costs are divided by its slowdown against its first run, or against the request's
    reference time, to compensate for a machine that throttles or is busy. ``cooldown`` is the seconds to wait after
    each library.
    """

    def __init__(self, timeout: float = 10.0, cooldown: float = 0.0) -> None:
        self.cooldown = cooldown
        self._pool = Pool(lambda: start_worker("tilewright.tuning.processes.run_worker"), 1, timeout)
        self._reference_seconds: dict[str, float] = {}

    def run(self, requests: Sequence[RunRequest], each: Callable[[int, Outcome], None] | None = None) -> list[Outcome]:
        """Run the requests and return their outcomes; the value of a finished one is a :class:`RunAnswer`.

        ``each`` is called with the number and outcome of every one as it comes, its value still that of the process.
        """

        def came(index: int, outcome: Outcome) -> None:
            if each is not None:
                each(index, outcome)
            time.sleep(self.cooldown)

        return [
            Outcome(**{**vars(o), "value": self._answer(r, o.value)}) if o.status == "done" else o
            for r, o in zip(requests, self._pool.map([asdict(r) for r in requests], came), strict=True)
        ]

    @property
    def timeout(self) -> float:
        """Seconds that a run may take."""
        return self._pool.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._pool.timeout = seconds

    def _answer(self, request: RunRequest, value: dict[str, list[float]]) -> RunAnswer:
        costs, reference = tuple(value["costs"]), tuple(value["reference"])
        if reference and costs:
            now = min(reference)  # others of the machine only ever delay it
            first = request.reference_seconds or self._reference_seconds.setdefault(request.reference, now)
            drift = min(max(now / first, 1 / _MOST_DRIFT), _MOST_DRIFT)
            costs = tuple(c / drift for c in costs)
        wrong = value["wrong"]
        return RunAnswer(costs, str(wrong) if wrong else None, reference)

    def close(self) -> None:
        """End the process."""
        self._pool.close()
