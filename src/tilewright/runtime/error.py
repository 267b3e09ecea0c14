"""The error type that crosses the C API."""


class TVMError(RuntimeError):
    """Raised when a runtime or compiled function reports failure; the text is the C side's last error."""
