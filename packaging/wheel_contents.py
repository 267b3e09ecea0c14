"""Look into a wheel: is its list of files true, its tag its name's, are its libraries without debug information."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path


def faults(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel; nothing where all is well."""
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
    (info,) = {name.split("/")[0] for name in files if name.split("/")[0].endswith(".dist-info")}
    found = [*_record_faults(files, f"{info}/RECORD")]
    tag = "-".join(wheel.stem.split("-")[2:])
    told = [
        line.removeprefix("Tag: ") for line in files[f"{info}/WHEEL"].decode().splitlines() if line.startswith("Tag: ")
    ]
    if told != [tag]:
        found.append(f"its name says {tag}, WHEEL says {', '.join(told)}")
    for name, data in files.items():
        if name.endswith((".pyc", ".o")) or name.startswith("tests/"):
            found.append(f"{name} is not to be installed")
        if data.startswith(b"\x7fELF") and any(s.startswith((".debug", ".zdebug")) for s in sections(data)):
            found.append(f"{name} has debug information")
    return found


def _record_faults(files: dict[str, bytes], record: str) -> Iterator[str]:
    listed = {row[0]: row[1] for row in csv.reader(io.StringIO(files[record].decode())) if row}
    for name in sorted(listed.keys() ^ files.keys()):
        yield f"{name} is {'listed in RECORD and not there' if name in listed else 'not listed in RECORD'}"
    for name in sorted(listed.keys() & files.keys() - {record}):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        if listed[name] != f"sha256={digest}":
            yield f"{name} has another checksum than RECORD says"


def sections(elf: bytes) -> list[str]:
    """Return the names of the sections of a little-endian ELF file of 64 bits (System V ABI, chapter 4)."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, strings = struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", elf, start + size * i) for i in range(count)]
    if not heads:
        return []
    table = heads[strings][4]
    return [elf[table + head[0] : elf.index(b"\0", table + head[0])].decode() for head in heads]
