"""Results of slow pure functions, kept by key and arguments: TVM's ``tvm.contrib.pickle_memoize``."""

from __future__ import annotations

import atexit
import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

_FOLDER = ".pkl_memoize_py3"  # in the directory of the process, as TVM has it


class Cache:
    """Results of the functions that share ``key``; with ``save_at_exit`` they are there for the next process too."""

    caches: ClassVar[dict[str, Cache]] = {}

    def __init__(self, key: str, save_at_exit: bool) -> None:
        self.path = Path(_FOLDER) / f"{key}.pkl"
        self.results: dict[bytes, Any] = {}
        if save_at_exit:
            if self.path.is_file():
                self.results = pickle.loads(self.path.read_bytes())
            atexit.register(self.save)

    def save(self) -> None:
        """Write the results to the folder ``.pkl_memoize_py3`` of the directory."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(pickle.dumps(self.results))


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function whose results are cached by its arguments and closure, all pickled."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        if key not in Cache.caches:
            Cache.caches[key] = Cache(key, save_at_exit)
        results = Cache.caches[key].results

        @functools.wraps(func)
        def kept(*args: Any) -> Any:
            closure = [cell.cell_contents for cell in func.__closure__ or ()]
            called_with = pickle.dumps((func.__name__, closure, args))
            if called_with not in results:
                results[called_with] = func(*args)
            return results[called_with]

        return kept

    return decorate
