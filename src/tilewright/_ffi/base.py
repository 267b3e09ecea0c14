"""``tvm._ffi.base``: where programs for TVM 0.8 find ``TVMError``, and names from the time of two Pythons."""

from tilewright.runtime.error import TVMError

string_types = (str,)
numeric_types = (float, int)


def py_str(text: bytes) -> str:
    """The text of bytes in UTF-8."""
    return text.decode("utf-8")


__all__ = ["TVMError", "numeric_types", "py_str", "string_types"]
