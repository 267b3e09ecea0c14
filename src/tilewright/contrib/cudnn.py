"""TVM's name for NVIDIA's cuDNN, which Tilewright never calls: its kernels for graphics processors are its own."""


def exists() -> bool:
    """Return whether kernels of cuDNN can be chosen: no."""
    return False
