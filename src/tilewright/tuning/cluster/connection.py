"""The cluster as the tuner sees it: trials are submitted, results return in any order.

The tuner waits for a scheduler that goes away. When it is back, finished trials are read from the workers' journals,
and the others are submitted again.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.autotvm.measurement import MeasureErrorNo
from tilewright.ir.errors import TilewrightError
from tilewright.tuning.cluster import site

try:
    from distributed import Client, KilledWorker
except ImportError as error:  # pragma: no cover
    raise TilewrightError("a Dask cluster needs the package distributed: pip install tilewright[cluster]") from error

logger = logging.getLogger("autotvm")

_LOOK = 3.0  # seconds between looks at the scheduler and its workers
_LATE = 5.0  # seconds after the end of a task, in which its result should have come
_ANSWER = 30.0  # seconds for the scheduler to answer
_KILLED = int(MeasureErrorNo.RUNTIME_DEVICE)


@dataclass
class Trial:
    """One submitted candidate: the requests for ``site.build`` and ``site.run``.

    ``untuned`` builds the program that it is compared with; ``owner`` is its submitter.
    """

    build: dict[str, Any]
    run: dict[str, Any]
    untuned: dict[str, Any]
    owner: Any
    sent: int = 0
    futures: list[Any] = field(default_factory=list)
    ended: float | None = None

    @property
    def id(self) -> str:
        """Identifier of its result."""
        return str(self.run["id"])


class Connection:
    """Trials under way on a cluster.

    Parameters
    ----------
    address : of the scheduler, or a ``distributed.Client``
    wanted : the processor that workers must have (``processor.wanted_for``)
    run : name of the run of tuning, by which journals know what was measured
    patience : seconds to wait for a scheduler, or for a worker that fits
    """

    def __init__(self, address: str | Client, wanted: dict[str, Any], run: str, patience: float = 600.0) -> None:
        self.wanted, self.run_name, self.patience = wanted, run, patience
        self._given = None if isinstance(address, str) else address
        self.address = address if isinstance(address, str) else str(address.scheduler_info(n_workers=0)["address"])
        self._client: Client | None = None
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._trials: dict[str, Trial] = {}
        self._untuned: dict[str, Any] = {}  # futures of their builds
        self._threads: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self._looked = 0.0
        self._scheduler = ""
        self._connect(min(60.0, patience))

    @property
    def client(self) -> Client:
        """Dask's client."""
        assert self._client is not None
        return self._client

    @property
    def slots(self) -> int:
        """Return how many trials to have under way: one for every thread of the workers, and one more a worker."""
        return max(1, sum(self._threads.values()) + len(self._threads))

    @property
    def pending(self) -> int:
        """Trials under way."""
        return len(self._trials)

    def send(self, trial: Trial) -> None:
        """Have a trial measured."""
        self._trials[trial.id] = trial
        self._submit(trial)

    def wait(self, seconds: float | None = None) -> list[tuple[Trial, dict[str, Any]]]:
        """Return results; wait up to ``seconds`` for one. Raises TilewrightError if the cluster is lost."""
        end = None if seconds is None else time.monotonic() + seconds
        found: list[tuple[Trial, dict[str, Any]]] = []
        while self._trials and not found:
            left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
            found = self._next(max(0.0, left))
            if time.monotonic() - self._looked > _LOOK:
                found += self._look()
            if end is not None and time.monotonic() >= end:
                break
        return found

    def journaled(self) -> list[dict[str, Any]]:
        """Return the measurements of the workers' machines in this run."""
        answers = self.client.run(site.journaled, self.run_name, workers=list(self._threads), on_error="ignore")
        return list({str(e["id"]): e for entries in answers.values() for e in entries}.values())

    def ask(self, task: Any, request: dict[str, Any], futures: Sequence[Any] = ()) -> Any:
        """Return one worker's answer to a request outside of the trials."""
        key = self._key(task.__name__, {"id": f"{request.get('id')}-{time.monotonic_ns()}"})
        future = self.client.submit(task, request, *futures, key=key, priority=30, **self._where())
        return future.result()

    def build(self, request: dict[str, Any]) -> Any:
        """The future of a build."""
        return self.client.submit(site.build, request, key=self._key("build", request), **self._where())

    def cancel(self, idents: Sequence[str]) -> None:
        """Trials that have not begun need not be measured; those that have go to journals."""
        for ident in idents:
            trial = self._trials.pop(ident, None)
            if trial is not None:
                self._release(trial)

    def close(self) -> None:
        """Leave the cluster."""
        self.cancel(list(self._trials))
        self._untuned.clear()
        client, self._client = self._client, None
        if client is not None and client is not self._given:
            with contextlib.suppress(Exception):
                client.close(timeout=2)

    def _key(self, kind: str, request: dict[str, Any], sent: int = 0) -> str:
        return f"tilewright-{kind}-{self.run_name}-{request['id']}-{sent}"

    def _where(self) -> dict[str, Any]:
        """Restrict tasks to workers that fit, if some do not."""
        return {"workers": list(self._threads)} if self._refused else {}

    def _submit(self, trial: Trial) -> None:
        """Submit a trial; if the client has lost the scheduler, the next check notices and submits all again."""
        try:
            self._hand_over(trial)
        except Exception:
            if self.client.status == "running":
                raise
            self._looked = 0.0

    def _hand_over(self, trial: Trial) -> None:
        trial.sent, trial.ended = trial.sent + 1, None
        where, client = self._where(), self.client
        untuned = built = self._built_untuned(trial.untuned)
        trial.futures = []
        if trial.build["id"] != trial.untuned["id"]:
            built = client.submit(site.build, trial.build, key=self._key("build", trial.build, trial.sent), **where)
            trial.futures.append(built)
        key = self._key("run", trial.run, trial.sent)
        ran = client.submit(site.run, trial.run, built, untuned, key=key, priority=10, **where)
        trial.futures.append(ran)
        messages, sent, ident = self._messages, trial.sent, trial.id
        ran.add_done_callback(lambda future: messages.put(("ended", (ident, sent, future))))

    def _built_untuned(self, request: dict[str, Any]) -> Any:
        """The future of an untuned choice's build, which stays on the cluster."""
        ident = str(request["id"])
        if ident not in self._untuned:
            key = self._key("untuned", {"id": f"{ident}-{time.monotonic_ns()}"})
            self._untuned[ident] = self.client.submit(site.build, request, key=key, priority=20, **self._where())
        return self._untuned[ident]

    def _release(self, trial: Trial) -> None:
        for future in trial.futures:
            with contextlib.suppress(Exception):
                future.release()
        trial.futures = []

    def _next(self, seconds: float) -> list[tuple[Trial, dict[str, Any]]]:
        """Return the results that arrive within ``seconds``."""
        found = []
        try:
            kind, value = self._messages.get(timeout=seconds)
            while True:
                found += self._took(value) if kind == "result" else self._ended(*value)
                kind, value = self._messages.get_nowait()
        except queue.Empty:
            return found

    def _took(self, entry: dict[str, Any]) -> list[tuple[Trial, dict[str, Any]]]:
        """A result; one that came before, by another way, counts once."""
        trial = self._trials.pop(str(entry["id"]), None)
        if trial is None:
            return []
        self._release(trial)
        return [(trial, entry)]

    def _ended(self, ident: str, sent: int, future: Any) -> list[tuple[Trial, dict[str, Any]]]:
        """Handle the end of a task, whose result has arrived or does not exist."""
        trial = self._trials.get(ident)
        if trial is None or trial.sent != sent:
            return []
        if future.status == "finished":
            trial.ended = time.monotonic()
            answer = future.result(timeout=_ANSWER)
            if "refused" in answer:
                self._refuse(answer["address"], answer["refused"])
                self._submit(trial)
        elif future.status == "error":
            return self._failed(trial, future)
        else:
            trial.ended, self._looked = 0.0, 0.0  # the scheduler does not know it any more
        return []

    def _failed(self, trial: Trial, future: Any) -> list[tuple[Trial, dict[str, Any]]]:
        error = future.exception(timeout=_ANSWER)
        what = "every worker that measured it has ended" if isinstance(error, KilledWorker) else repr(error)
        entry = {
            "id": trial.id, "record": trial.run["record"], "costs": [], "error_no": _KILLED, "message": what,
            "traceback": "", "seconds": 0.0, "timestamp": time.time(), "reference": 0.0,
        }  # fmt: skip
        return self._took(entry)

    def _look(self) -> list[tuple[Trial, dict[str, Any]]]:
        """Check the scheduler and its workers, and return late results."""
        try:
            self._looked = time.monotonic()
            if self._identity() != self._scheduler:
                raise OSError("another scheduler")
            self._meet_workers()
        except Exception as error:
            logger.warning("the scheduler at %s is gone (%s); waiting for it", self.address, error)
            return self._again()
        now = time.monotonic()
        late = [t for t in self._trials.values() if t.ended is not None and now - t.ended > _LATE]
        if not late:
            return []
        known = {str(e["id"]): e for e in self.journaled()}
        for trial in late:
            if trial.id not in known:
                self._submit(trial)
        return [pair for trial in late if trial.id in known for pair in self._took(known[trial.id])]

    def _again(self) -> list[tuple[Trial, dict[str, Any]]]:
        """Wait for a scheduler; keep the workers' journaled results, and submit the other trials again."""
        client, self._client = self._client, None
        if client is not None and client is not self._given:
            with contextlib.suppress(Exception):
                client.close(timeout=1)
        self._connect(self.patience)
        found = [pair for entry in self.journaled() for pair in self._took(entry)]
        for trial in self._trials.values():
            self._submit(trial)
        return found

    def _connect(self, patience: float) -> None:
        end = time.monotonic() + patience
        client: Client | None = self._given if self._given is not None and not self._scheduler else None
        while client is None:
            try:
                security = self._given.security if self._given is not None else None
                client = Client(self.address, timeout=5, set_as_default=False, security=security)
            except (OSError, TimeoutError) as error:
                if time.monotonic() > end:
                    raise TilewrightError(f"no Dask scheduler answers at {self.address}: {error}") from error
                time.sleep(0.5)
        self._client, self._threads, self._refused, self._untuned = client, {}, {}, {}
        messages = self._messages
        client.subscribe_topic(site.topic(self.run_name), lambda event: messages.put(("result", event[1])))
        self._scheduler = self._identity()
        while not self._threads:
            self._meet_workers()
            if not self._threads and time.monotonic() > end:
                raise TilewrightError(self._nobody())
            if not self._threads:
                time.sleep(0.2)
            if self._refused and not self._threads and not self._scheduler_expects_more():
                raise TilewrightError(self._nobody())
        self._looked = time.monotonic()

    def _scheduler_expects_more(self) -> bool:
        """Return whether all who are there have not been asked yet."""
        return bool(set(self.client.nthreads()) - set(self._refused))

    def _nobody(self) -> str:
        if not self._refused:
            return f"the scheduler at {self.address} has no workers: start some (`dask worker {self.address}`)"
        reasons = "\n".join(f"{address}: {why}" for address, why in self._refused.items())
        return f"no worker of the cluster at {self.address} can measure for this processor:\n{reasons}"

    def _identity(self) -> str:
        return str(self.client.scheduler_info(n_workers=0)["id"])

    def _meet_workers(self) -> None:
        """Check whether new workers fit."""
        there = dict(self.client.nthreads())
        self._threads = {a: n for a, n in there.items() if a in self._threads}
        self._refused = {a: why for a, why in self._refused.items() if a in there}
        new = [a for a in there if a not in self._threads and a not in self._refused]
        if not new:
            return
        for address, answer in self.client.run(site.greet, self.wanted, workers=new, on_error="return").items():
            if answer is None:
                self._threads[address] = there[address]
            elif not isinstance(answer, OSError):  # who is gone already is none
                self._refuse(address, str(answer) if isinstance(answer, str) else repr(answer))

    def _refuse(self, address: str, why: str) -> None:
        if address not in self._refused:
            logger.warning("the worker %s measures nothing: %s", address, why)
        self._threads.pop(address, None)
        self._refused[address] = why
        self._untuned.clear()  # it may have been asked for one of these
