"""The options of ``torch.compile(backend="tilewright", options={...})``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.module import set_num_threads


@dataclass(frozen=True)
class Options:
    """The choices of a user.

    Attributes:
        target: what to compile for, a text as ``relay.build`` takes it; this machine's CPU.
        threads: how many threads the loops of this process use from now on; None leaves that as it is.
        tune_records: a file of tuning records.
        cache_dir: a folder where compiled libraries are kept by their content; None keeps none.
        freezing: whether weights become constants of programs that need no gradients. They are checked in each call;
            weights that change through ``tensor.data``, which torch does not tell, are not noticed.
        opt_level: which passes run, from 0 to 3.
        fallback: whether operators that Tilewright does not have run in PyTorch; else they are an error.
    """

    target: str = "llvm"
    threads: int | None = None
    tune_records: str | None = None
    cache_dir: str | None = None
    freezing: bool = False
    opt_level: int = 3
    fallback: bool = True

    @staticmethod
    def of(given: Mapping[str, Any] | None, mode: str | None) -> Options:
        """Check options, and set the number of threads."""
        if mode not in (None, "default"):
            raise TilewrightError(
                f"torch.compile(backend='tilewright') has no mode {mode!r}; "
                "options={'tune_records': ...} makes it faster"
            )
        given = dict(given or {})
        fields = {field.name: field for field in dataclasses.fields(Options)}
        if unknown := [name for name in given if name not in fields]:
            raise TilewrightError(
                f"torch.compile(backend='tilewright') has no option {', '.join(unknown)}; it has {', '.join(fields)}"
            )
        values: dict[str, Any] = {name: str(v) if isinstance(v, Path) else v for name, v in given.items()}
        made = Options(**values)
        made._check()
        if made.threads is not None:
            set_num_threads(made.threads)
        return made

    def _check(self) -> None:
        kinds = {
            "target": str, "threads": (int, type(None)), "tune_records": (str, type(None)),
            "cache_dir": (str, type(None)), "freezing": bool, "opt_level": int, "fallback": bool,
        }  # fmt: skip
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):  # type: ignore[arg-type]
                raise TilewrightError(f"torch.compile(backend='tilewright'): the option {name} cannot be {value!r}")
        if self.tune_records is not None and not Path(self.tune_records).is_file():
            raise TilewrightError(f"torch.compile(backend='tilewright'): tune_records: no file {self.tune_records}")
