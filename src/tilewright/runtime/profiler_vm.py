"""A virtual machine that measures which kernels a run calls, how often, and how long they take."""

from __future__ import annotations

from typing import Any, NoReturn

from .error import TVMError
from .profiling import Report
from .vm import VirtualMachine


def enabled() -> bool:
    """Return whether programs can be profiled: always."""
    return True


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
        whole, *lines = self.module["profile"](func_name).splitlines()
        total = float(whole)
        calls = []
        for line in lines:
            name, count, seconds = line.rsplit(" ", 2)
            spent = float(seconds)
            share = 100 * spent / total if total else 0.0
            calls.append(
                {"Name": name, "Duration (us)": spent * 1e6, "Percent": share, "Count": int(count), "Device": "host"}
            )
        return Report(tuple(calls), {"host": {"Duration (us)": total * 1e6, "Percent": 100.0}})
