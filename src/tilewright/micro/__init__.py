"""Networks for boards: C that needs no runtime (``export_bundle``), and TVM's Model Library Format."""

from tilewright.micro.bundle import BundleExample, export_bundle
from tilewright.micro.crt import CrtNotFoundError, get_standalone_crt_dir
from tilewright.micro.model_library_format import UnsupportedInModelLibraryFormatError, export_model_library_format

__all__ = [
    "BundleExample", "CrtNotFoundError", "UnsupportedInModelLibraryFormatError", "export_bundle",
    "export_model_library_format", "get_standalone_crt_dir",
]  # fmt: skip
