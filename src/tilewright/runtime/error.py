"""Errors that the runtime raises."""


class TVMError(RuntimeError):
    """An error reported by the runtime or by a compiled function."""


class ExportError(TVMError):
    """A library could not be written: no compiler, no space, no permission, or the compiler failed."""
