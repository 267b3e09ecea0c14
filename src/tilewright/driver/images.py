"""Pictures as inputs of a model: decoded, brought to the input's height and width, and scaled as the model expects.

Steps, in this order: turn as the EXIF data say; take the channels that the input has (1 grey, 3 RGB, 4 RGBA); fit to
height and width; map 0..255 linearly to ``range``; subtract ``mean`` and divide by ``std``, each one number or one for
each channel; exchange red and blue for ``order=bgr``; lay out as the input is, channels first or last.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import typer

from tilewright.runtime.error import TVMError
from tilewright.runtime.interface import TensorInfo
from tilewright.runtime.ndarray import numpy_dtype

_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class ImageOptions:
    """Conversion of pixels to numbers; by default ``range`` is 0..1 for floating-point inputs and 0..255
    for integers.
    """

    range: tuple[float, ...] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    order: str = "rgb"
    fit: str = "stretch"


def parse_image_options(values: list[str] | None) -> ImageOptions:
    """Parse ``range=-1,1``, ``mean=0.485,0.456,0.406``, ``std=...``, ``order=bgr``, ``fit=crop``."""
    given: dict[str, Any] = {}
    for item in values or ():
        name, _, value = item.partition("=")
        if name in ("order", "fit"):
            choices = ("rgb", "bgr") if name == "order" else ("stretch", "crop")
            if value not in choices:
                raise typer.BadParameter(f"{item!r}: {name} is one of {', '.join(choices)}")
            given[name] = value
        elif name in ("range", "mean", "std"):
            given[name] = _numbers(item, name, value)
        else:
            raise typer.BadParameter(f"{item!r}: the options of pictures are range, mean, std, order, fit")
    return ImageOptions(**given)


def _numbers(item: str, name: str, value: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(number) for number in value.split(","))
    except ValueError:
        raise typer.BadParameter(f"{item!r}: {name} takes numbers with commas between them") from None
    if name == "range" and len(numbers) != 2:
        raise typer.BadParameter(f"{item!r}: range takes two numbers, what 0 and what 255 become")
    if name == "std" and 0 in numbers:
        raise typer.BadParameter(f"{item!r}: std must not be 0")
    return numbers


def is_image(data: bytes) -> bool:
    """Return whether ``data`` begins as a PNG or JPEG file does."""
    return data.startswith(_MAGIC)


def image_layout(info: TensorInfo) -> tuple[int, int, int, bool] | None:
    """Return channels, height, width and whether the channels come first, of an image input; else None.

    Such an input has the shape (1, C, H, W), (C, H, W), (1, H, W, C), (H, W, C) with 1, 3 or 4 channels, or (H, W).
    """
    shape = tuple(d for d in info.shape if isinstance(d, int))
    if len(shape) < len(info.shape):
        return None
    if len(shape) == 4 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3 or 0 in shape:
        return None
    if shape[0] in _MODES:
        return shape[0], shape[1], shape[2], True
    if shape[2] in _MODES:
        return shape[2], shape[0], shape[1], False
    return None


def read_image(data: bytes, where: str, name: str, info: TensorInfo, options: ImageOptions) -> np.ndarray[Any, Any]:
    """The array that a PNG or JPEG file becomes for an input.

    Raises:
        TVMError: Pillow is not installed, the input takes no picture, or the file is damaged.
    """
    layout = image_layout(info)
    if layout is None:
        raise TVMError(
            f"{where}: a picture cannot be the input {name!r}, {info}; one takes a picture that has the shape "
            "(1, channels, height, width) or (1, height, width, channels) with 1, 3 or 4 channels"
        )
    channels, height, width, channels_first = layout
    pixels = _scaled(_decode(data, where, channels, height, width, options.fit), info, channels, where, options)
    if options.order == "bgr" and channels >= 3:
        pixels = pixels[..., [2, 1, 0, *range(3, channels)]]
    if channels_first:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels).reshape(info.shape)


def _decode(data: bytes, where: str, channels: int, height: int, width: int, fit: str) -> np.ndarray[Any, Any]:
    """Decode an image to (height, width, channels) of uint8."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise TVMError(f"{where}: reading pictures needs Pillow; install it: pip install 'tilewright[image]'") from None
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as opened:
            image = ImageOps.exif_transpose(opened).convert(_MODES[channels])
            if fit == "crop":
                image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
            elif image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            return np.asarray(image).reshape(height, width, channels)
    except Exception as error:  # decoders raise many kinds on damaged files
        raise TVMError(f"{where}: cannot read the picture: {error}") from None


def _scaled(
    pixels: np.ndarray[Any, Any], info: TensorInfo, channels: int, where: str, options: ImageOptions
) -> np.ndarray[Any, Any]:
    dtype = numpy_dtype(info.dtype)
    whole = dtype.kind in "iu"
    low, high = options.range or ((0.0, 255.0) if whole else (0.0, 1.0))
    for name, numbers in ("mean", options.mean), ("std", options.std):
        if len(numbers) not in (1, channels):
            raise TVMError(f"{where}: {name} has {len(numbers)} numbers, and the input {channels} channels")
    values = (low + pixels.astype("float64") * ((high - low) / 255) - options.mean) / options.std
    if not whole:
        return values.astype(dtype)
    values, limits = np.rint(values), np.iinfo(dtype)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise TVMError(
            f"{where}: pixels become {values.min():g} to {values.max():g}, which {info.dtype} does not hold; give "
            f"--image range={limits.min},{limits.max}"
        )
    return values.astype(dtype)
