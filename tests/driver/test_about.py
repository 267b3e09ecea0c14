"""``tilewright about``."""

from __future__ import annotations

import json

import numpy as np
from tests.driver.command import tilewright

from tilewright import __version__


def test_it_tells_versions_and_the_machine() -> None:
    found = json.loads(tilewright("about", "--json").stdout)
    assert found["tilewright"].startswith(__version__)
    assert found["numpy"] == np.__version__
    assert found["machine"] and found["compiler and linker"] and found["native runtime"]
