"""Projects for boards, made from a template and a compiled network; a server of their own builds and runs them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tilewright.micro.crt import get_standalone_crt_dir
from tilewright.micro.model_library_format import export_model_library_format
from tilewright.micro.project_api import client
from tilewright.micro.project_api.client import ProjectAPIClient
from tilewright.micro.transport import Transport, TransportTimeouts
from tilewright.version import __version__

Options = dict[str, Any]


class TemplateProjectError(Exception):
    """A folder that should be a project is a template."""


class NotATemplateProjectError(Exception):
    """A folder that should be a template is a project."""


class ProjectTransport(Transport):
    """The line to a project's board, which the project's server holds; closing it ends the server."""

    def __init__(self, api_client: ProjectAPIClient, options: Options | None) -> None:
        self._client, self._options = api_client, options
        self._timeouts: TransportTimeouts | None = None

    def timeouts(self) -> TransportTimeouts:
        """Return those that the server told."""
        assert self._timeouts is not None, "Transport not yet opened"
        return self._timeouts

    def open(self) -> None:
        """Open the line."""
        self._timeouts = TransportTimeouts(**self._client.open_transport(self._options)["timeouts"])

    def close(self) -> None:
        """Close the line."""
        if not self._client.is_shutdown:
            self._client.close_transport()
            self._client.shutdown()

    def read(self, n: int, timeout_sec: float | None) -> bytes:
        """Read from the board."""
        return self._client.read_transport(n, timeout_sec)["data"]

    def write(self, data: bytes, timeout_sec: float | None) -> None:
        """Write to the board."""
        self._client.write_transport(data, timeout_sec)


class GeneratedProject:
    """A project in a folder; ``options`` go to its server with every request."""

    @classmethod
    def from_directory(cls, project_dir: str | Path, options: Options | None) -> GeneratedProject:
        """Return the project of a folder, whose server is started."""
        return cls(client.instantiate_from_dir(project_dir), options)

    def __init__(self, api_client: ProjectAPIClient, options: Options | None) -> None:
        self._client, self._options = api_client, options
        self._info = api_client.server_info_query(__version__)
        if self._info["is_template"]:
            raise TemplateProjectError("the folder is a template: generate_project makes a project of it")

    def build(self) -> None:
        """Build its program."""
        self._client.build(self._options)

    def flash(self) -> None:
        """Write the program to the board."""
        self._client.flash(self._options)

    def transport(self) -> ProjectTransport:
        """Return the line to the board, not open yet."""
        return ProjectTransport(self._client, self._options)

    def info(self) -> dict[str, Any]:
        """Return what its server says of it."""
        return self._info


class TemplateProject:
    """A template in a folder."""

    @classmethod
    def from_directory(cls, template_project_dir: str | Path) -> TemplateProject:
        """Return the template of a folder, whose server is started."""
        return cls(client.instantiate_from_dir(template_project_dir))

    def __init__(self, api_client: ProjectAPIClient) -> None:
        self._client = api_client
        self._info = api_client.server_info_query(__version__)
        if not self._info["is_template"]:
            raise NotATemplateProjectError("the folder is a generated project, not a template")

    def info(self) -> dict[str, Any]:
        """Return what its server says of it, its options among it."""
        return self._info

    def _check_project_options(self, options: Options | None) -> None:
        known = {option["name"]: option["choices"] for option in self._info["project_options"]}
        if unknown := [name for name in options or {} if name not in known]:
            raise ValueError(
                f"options:{unknown} include non valid ProjectOptions. Here is a list of available options:"
                f"{list(known)}."
            )
        for name, value in (options or {}).items():
            if known[name] is not None and value not in known[name]:
                raise ValueError(f"the option {name} is {value!r}; it may be {', '.join(map(str, known[name]))}")

    def generate_project_from_mlf(
        self, model_library_format_path: str | Path, project_dir: str | Path, options: Options | None
    ) -> GeneratedProject:
        """Make a project with the network of an archive; raises ValueError for unknown options."""
        self._check_project_options(options)
        self._client.generate_project(
            os.path.abspath(model_library_format_path), get_standalone_crt_dir(), os.path.abspath(project_dir), options
        )
        return GeneratedProject.from_directory(project_dir, options)

    def generate_project(
        self, graph_executor_factory: Any, project_dir: str | Path, options: Options | None
    ) -> GeneratedProject:
        """Make a project with a compiled network or operator."""
        with tempfile.TemporaryDirectory(prefix="tilewright-mlf-") as folder:
            archive = export_model_library_format(graph_executor_factory, Path(folder) / "model.tar")
            return self.generate_project_from_mlf(archive, project_dir, options)


def generate_project(
    template_project_dir: str | Path,
    module: Any,
    generated_project_dir: str | Path,
    options: Options | None = None,
) -> GeneratedProject:
    """Make a project for a board.

    Parameters
    ----------
    template_project_dir : the folder of a template, such as ``get_microtvm_template_projects("qemu")``
    module : what the project runs: the result of ``relay.build`` or ``tvm.build`` for C with ``-system-lib``
    generated_project_dir : the project's folder, which does not exist yet
    options : of the template; ``TemplateProject.info()`` tells which there are

    Returns
    -------
    The project, to ``build()``, ``flash()`` and open: ``Session(project.transport())``.

    Raises
    ------
    ValueError : an option is not known, or has a value that it may not have
    ServerError : the template's server refuses or fails
    """
    template = TemplateProject.from_directory(template_project_dir)
    return template.generate_project(module, str(generated_project_dir), options)


def generate_project_from_mlf(
    template_project_dir: str | Path, project_dir: str | Path, mlf_path: str | Path, options: Options | None
) -> GeneratedProject:
    """Make a project of an archive in the Model Library Format; otherwise as ``generate_project``."""
    template = TemplateProject.from_directory(template_project_dir)
    return template.generate_project_from_mlf(mlf_path, str(project_dir), options)
