"""A compiled library, as the tests of the command line have it."""

from __future__ import annotations

from tests.driver.conftest import library as library
