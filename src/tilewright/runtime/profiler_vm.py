"""A virtual machine that measures which kernels a run calls, how often, and how long they take."""

from __future__ import annotations

from typing import Any, NoReturn

from .error import TVMError
from .profiling import Report, Value
from .vm import VirtualMachine


def enabled() -> bool:
    """Return whether programs can be profiled: always."""
    return True


def profiled(machine: VirtualMachine, func_name: str) -> tuple[float, list[tuple[str, int, float]]]:
    """Run a function whose inputs are set; return its seconds, and name, number of calls and seconds of each kernel."""
    whole, *lines = machine.module["profile"](func_name).splitlines()
    fields = [line.rsplit(" ", 2) for line in lines]
    return float(whole), [(name, int(count), float(seconds)) for name, count, seconds in fields]


class VirtualMachineProfiler(VirtualMachine):
    """A virtual machine that reports times."""

    def get_stat(self, sort_by_time: bool = True) -> NoReturn:
        """Raise an error that names the replacement, :meth:`profile`, as in TVM 0.8."""
        raise TVMError("get_stat is gone since TVM 0.8: profile(...) runs a function and gives a report of it")

    def profile(self, *args: Any, func_name: str = "main", collectors: Any = None, **kwargs: Any) -> Report:
        """Run a function once, after a run that does not count, and report the time of each kernel and of all.

        Raises
        ------
        TVMError : ``collectors`` are asked for; time alone is measured
        """
        if collectors:
            raise TVMError("profile takes no collectors: it measures time alone")
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        self.module["invoke"](func_name)
        total, kernels = profiled(self, func_name)
        calls: list[dict[str, Value]] = []
        for name, count, spent in kernels:
            share = 100 * spent / total if total else 0.0
            calls.append(
                {"Name": name, "Duration (us)": spent * 1e6, "Percent": share, "Count": count, "Device": "host"}
            )
        return Report(tuple(calls), {"host": {"Duration (us)": total * 1e6, "Percent": 100.0}})
