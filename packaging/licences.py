"""Check the licences of what Tilewright installs, as its packages declare them: ``make licences``.

    python packaging/licences.py            # what this environment has of the dependencies and their own
    python packaging/licences.py --extras   # and of what the extras for users bring

A package is refused whose licence is none of PERMISSIVE; EXCEPTIONS names those that an extra may bring, and why.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
# Extras that only developers install.
DEVELOPERS = {"test", "bench", "bench-llama", "release", "lint"}

# By SPDX: https://spdx.org/licenses. Use, change and sale are free, and nothing is asked of what is built on it.
PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0",
    "MIT-CMU", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "LLVM-exception",
}  # fmt: skip
# Words of packages that name no licence by SPDX.
WORDS = {
    r"apache( software| license)*,?( version)?[ v-]*2(\.0)?|apache software license|apache 2\.0": "Apache-2.0",
    r"(3-clause |new |modified )?bsd( 3-clause)?( license)?|bsd-3-clause.*": "BSD-3-Clause",
    r"(the )?mit( license)?": "MIT",
    r"isc( license)?( \(iscl\))?": "ISC",
    r"apache-2\.0 with llvm exceptions": "Apache-2.0 WITH LLVM-exception",
}
_INTEL = "Intel's own terms, of what the package onednn of the extra dnnl brings; Tilewright passes none of it on"
EXCEPTIONS = {
    **dict.fromkeys(
        ("dpcpp-cpp-rt", "intel-cmplr-lib-rt", "intel-cmplr-lib-ur", "intel-cmplr-lic-rt", "intel-opencl-rt",
         "intel-openmp", "intel-sycl-rt", "tbb", "tcmlib"), _INTEL,
    ),
    "nvidia-nccl-cu12": "NVIDIA's own terms; xgboost, of the extra tune, brings it; Tilewright does not pass it on",
}  # fmt: skip


@dataclass(frozen=True)
class Package:
    """An installed package, and its licence in SPDX's terms, or in its own words where they say nothing there."""

    name: str
    version: str
    licence: str

    @property
    def is_permissive(self) -> bool:
        """Whether every licence that holds is one of PERMISSIVE: all of an "AND", one of an "OR"."""
        expression, count = self.licence, 1
        while count:  # innermost parentheses first: each becomes a licence that is permissive, or one that is not
            expression, count = re.subn(r"\(([^()]*)\)", lambda m: "MIT" if _holds(m[1]) else "none", expression)
        return _holds(expression)


def _holds(expression: str) -> bool:
    """Return whether an expression without parentheses is permissive."""
    return any(
        all(name in PERMISSIVE for name in re.split(r" (?:AND|WITH) ", part.strip()))
        for part in expression.split(" OR ")
    )


def licence_of(found: metadata.PackageMetadata) -> str:
    """Return a package's licence: its expression, else what its classifiers or its line "License" say."""
    expression = found.get("License-Expression")
    if expression:
        return expression
    classified = [text.split(" :: ")[-1] for text in found.get_all("Classifier") or [] if text.startswith("License ::")]
    line = (found.get("License") or "").strip().split("\n")[0]
    said = [text for text in (*classified, line) if text]
    for text in said:
        for pattern, licence in WORDS.items():
            if text in PERMISSIVE or re.fullmatch(pattern, text, re.IGNORECASE):
                return text if text in PERMISSIVE else licence
    return said[0] if said else "none"


def declared(extras: bool) -> list[Requirement]:
    """Return the requirements of Tilewright, and those of extras for users where they are asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chosen = [name for name in project["optional-dependencies"] if extras and name not in DEVELOPERS]
    texts = [*project["dependencies"], *(text for name in chosen for text in project["optional-dependencies"][name])]
    return [Requirement(text) for text in texts]


def installed(wanted: Iterable[Requirement]) -> tuple[list[Package], list[str]]:
    """Return the packages that requirements bring, with their own, and the names of those that are not here."""
    todo, found, missing = list(wanted), {}, []
    while todo:
        requirement = todo.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or name in missing:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        found[name] = Package(name, package.version, licence_of(package.metadata))
        own = [Requirement(text) for text in package.requires or []]
        todo += [each for each in own if each.marker is None or each.marker.evaluate({"extra": ""})]
    return sorted(found.values(), key=lambda package: package.name), sorted(missing)


def refused(packages: Iterable[Package]) -> list[str]:
    """Return a line for each package whose licence is not permissive and no exception."""
    return [
        f"{package.name} {package.version}: {package.licence}"
        for package in packages
        if not package.is_permissive and package.name not in EXCEPTIONS
    ]


def main() -> None:
    """Print each package with its licence; leave with those that are refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", action="store_true", help="and of the extras for users")
    packages, missing = installed(declared(parser.parse_args().extras))
    for package in packages:
        note = "" if package.is_permissive else f"  ({EXCEPTIONS.get(package.name, 'refused')})"
        print(f"{package.name:24} {package.version:12} {package.licence}{note}")
    if missing:
        print(f"not installed here, so not looked at: {', '.join(missing)}")
    if lines := refused(packages):
        sys.exit("licences that are not permissive:\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
