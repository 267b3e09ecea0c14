"""Networks for boards: C that needs no runtime (``export_bundle``), TVM's Model Library Format, and projects.

``generate_project`` makes a project of a template and a network; ``Session`` runs it on a board. Parts are loaded on
use: the servers of projects, which are processes of their own, need few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.load_on_use import load_on_use

if TYPE_CHECKING:
    from tilewright.micro import project_api, testing, transport
    from tilewright.micro.build import (
        AutoTvmModuleLoader,
        MicroTVMTemplateProject,
        MicroTVMTemplateProjectNotFoundError,
        autotvm_build_func,
        get_microtvm_template_projects,
    )
    from tilewright.micro.bundle import BundleExample, export_bundle
    from tilewright.micro.crt import CrtNotFoundError, get_standalone_crt_dir
    from tilewright.micro.model_library_format import UnsupportedInModelLibraryFormatError, export_model_library_format
    from tilewright.micro.project import (
        GeneratedProject,
        TemplateProject,
        generate_project,
        generate_project_from_mlf,
    )
    from tilewright.micro.session import (
        Session,
        SessionTerminatedError,
        create_local_debug_executor,
        create_local_graph_executor,
    )
    from tilewright.micro.transport import TransportLogger
    from tilewright.micro.wasm import export_wasm

__getattr__, __dir__ = load_on_use(
    __name__,
    [
        ".build", ".bundle", ".crt", ".model_library_format", ".project", ".project_api", ".session", ".testing",
        ".transport", ".wasm",
    ],
    {
        ".build": (
            "AutoTvmModuleLoader", "MicroTVMTemplateProject", "MicroTVMTemplateProjectNotFoundError",
            "autotvm_build_func", "get_microtvm_template_projects",
        ),
        ".bundle": ("BundleExample", "export_bundle"),
        ".crt": ("CrtNotFoundError", "get_standalone_crt_dir"),
        ".model_library_format": ("UnsupportedInModelLibraryFormatError", "export_model_library_format"),
        ".project": ("GeneratedProject", "TemplateProject", "generate_project", "generate_project_from_mlf"),
        ".session": ("Session", "SessionTerminatedError", "create_local_debug_executor", "create_local_graph_executor"),
        ".transport": ("TransportLogger",),
        ".wasm": ("export_wasm",),
    },
)  # fmt: skip


__all__ = [
    "AutoTvmModuleLoader", "BundleExample", "CrtNotFoundError", "GeneratedProject", "MicroTVMTemplateProject",
    "MicroTVMTemplateProjectNotFoundError", "Session", "SessionTerminatedError", "TemplateProject", "TransportLogger",
    "UnsupportedInModelLibraryFormatError", "autotvm_build_func", "create_local_debug_executor",
    "create_local_graph_executor", "export_bundle", "export_model_library_format", "export_wasm", "generate_project",
    "generate_project_from_mlf", "get_microtvm_template_projects", "get_standalone_crt_dir", "project_api", "testing",
    "transport",
]  # fmt: skip
