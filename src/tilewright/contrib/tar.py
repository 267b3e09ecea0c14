"""Archives of object files, as ``export_library`` writes them for a name that ends in ``.tar``."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path


def tar(output: str, files: str | Sequence[str]) -> None:
    """Pack files, without their folders, into an archive."""
    with tarfile.open(output, "w") as archive:
        for name in [files] if isinstance(files, str) else files:
            archive.add(name, arcname=Path(name).name)


def untar(tar_file: str, directory: str) -> None:
    """Unpack an archive; raises an error for members outside of the directory."""
    with tarfile.open(tar_file) as archive:
        archive.extractall(directory, filter="data")


tar.output_format = "tar"  # type: ignore[attr-defined]
