"""The families of processors that have records of their own, and LLVM's names of their members.

A record names what was measured on its family. All else it takes over from ``DEFAULT``.
"""

from __future__ import annotations

from tilewright.target.processors.record import Caches, Dense, Memory, Processor

DEFAULT = Processor("default")

_ZEN_MEMORY = Memory(streams_past_caches=True)

_OLD_ZEN_MEMORY = Memory(row_bytes_ahead=0)

# Measured on Zen 5, Zen 4 and Zen 3; older members take over what holds for that.
_ZEN = Processor("Zen, Zen 2", memory=_OLD_ZEN_MEMORY)
_ZEN3 = Processor("Zen 3", memory=_OLD_ZEN_MEMORY)
# Pairs of bfloat16 are by AMD's word; nobody has measured them.
_ZEN_DENSE = Dense(pairs_of_bfloat16=True)
_ZEN4 = Processor("Zen 4", Caches(32 << 10, 1 << 20, 32 << 20), _ZEN_MEMORY, dense=_ZEN_DENSE)
_ZEN5 = Processor("Zen 5", Caches(48 << 10, 1 << 20, 32 << 20), _ZEN_MEMORY, dense=_ZEN_DENSE)

# Memory was measured on Sapphire Rapids, where it agrees with the default.
_INTEL_SERVER = Processor("Intel server")
_SAPPHIRE_RAPIDS = Processor("Sapphire Rapids", Caches(48 << 10, 2 << 20, 60 << 20))

# Nothing was measured on these: they stand for themselves as soon as somebody does.
_INTEL_CLIENT = Processor("Intel client")
_APPLE = Processor("Apple")
_NEOVERSE = Processor("Neoverse")

_MEMBERS: dict[Processor, tuple[str, ...]] = {
    _ZEN: ("znver1", "znver2"),
    _ZEN3: ("znver3",),
    _ZEN4: ("znver4",),
    _ZEN5: ("znver5",),
    _INTEL_SERVER: ("skylake-avx512", "skx", "cascadelake", "cooperlake", "icelake-server"),
    _SAPPHIRE_RAPIDS: ("sapphirerapids", "emeraldrapids", "graniterapids"),
    _INTEL_CLIENT: (
        *("sandybridge", "corei7-avx", "ivybridge", "core-avx-i", "haswell", "core-avx2", "broadwell", "skylake"),
        *("icelake-client", "tigerlake", "rocketlake", "gracemont"),
        *("alderlake", "raptorlake", "meteorlake", "arrowlake"),
    ),
    _APPLE: (
        *("apple-a12", "apple-a13", "apple-a14", "apple-a15", "apple-a16", "apple-a17"),
        *("apple-m1", "apple-m2", "apple-m3"),
    ),
    _NEOVERSE: ("neoverse-e1", "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2", "neoverse-512tvb"),
}
_BY_NAME = {cpu: processor for processor, names in _MEMBERS.items() for cpu in names}


def processor_of(cpu: str) -> Processor:
    """Return the record for ``cpu``, LLVM's name of a processor; ``DEFAULT`` if its family has none."""
    return _BY_NAME.get(cpu, DEFAULT)
