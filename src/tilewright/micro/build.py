"""Where the templates of projects are, and how AutoTVM builds and runs candidates on boards."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.micro.crt import get_standalone_crt_dir
from tilewright.micro.model_library_format import export_model_library_format
from tilewright.micro.session import open_micro_session


class MicroTVMTemplateProjectNotFoundError(Exception):
    """The installation lacks the template."""


class MicroTVMTemplateProject(enum.Enum):
    """The platforms that there are templates for: a process of this machine, and boards that QEMU emulates."""

    CRT = "crt"
    QEMU = "qemu"

    @classmethod
    def list(cls) -> list[str]:
        """Return their names."""
        return [member.value for member in cls]


_FOLDERS = {"crt": "host", "qemu": "qemu"}


def get_microtvm_template_projects(platform: str) -> str:
    """Return the folder of a platform's template.

    Raises
    ------
    ValueError : there is no template for the platform
    MicroTVMTemplateProjectNotFoundError : the installation lacks it
    """
    if platform not in _FOLDERS:
        raise ValueError(f"platform {platform} is not supported; there are {', '.join(_FOLDERS)}")
    folder = os.path.join(get_standalone_crt_dir(), "template", _FOLDERS[platform])
    if not os.path.isdir(folder):
        raise MicroTVMTemplateProjectNotFoundError(folder)
    return folder


class AutoTvmModuleLoader:
    """Runs what AutoTVM measures on a board: ``LocalRunner(module_loader=AutoTvmModuleLoader(template, options))``.

    Parameters
    ----------
    template_project_dir : the template of the board's projects
    project_options : its options
    """

    def __init__(self, template_project_dir: Path | str, project_options: dict[str, Any] | None = None) -> None:
        if not isinstance(template_project_dir, (Path, str)):
            raise TypeError(f"Incorrect type {type(template_project_dir)}.")
        self._template, self._options = str(template_project_dir), project_options

    @contextmanager
    def __call__(self, remote_kw: Any, build_result: Any) -> Iterator[tuple[Any, Any]]:
        """Open a session on a board with a built candidate; give it, and its functions."""
        session = open_micro_session(build_result.filename, self._template, self._options)
        try:
            yield session._rpc, session.get_system_lib()
        finally:
            session.close()


class _ModelLibraryFormat:
    """The build function that makes archives: ``LocalBuilder(build_func=tvm.micro.autotvm_build_func)``."""

    output_format = ".model-library-format"
    write_module = staticmethod(export_model_library_format)

    def __call__(self) -> None:
        """Do nothing: ``write_module`` is what builders call."""


autotvm_build_func = _ModelLibraryFormat()
