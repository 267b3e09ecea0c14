"""Networks for boards: C that needs no runtime (``export_bundle``), and TVM's Model Library Format."""

from tilewright.micro.bundle import BundleExample, export_bundle

__all__ = ["BundleExample", "export_bundle"]
