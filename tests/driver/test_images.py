"""Pictures as inputs: layouts, channels, scaling, and files that are none."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from tests.driver.command import DIGITS, tilewright

from tilewright.driver.images import image_layout, parse_image_options, read_image
from tilewright.runtime.error import TVMError
from tilewright.runtime.interface import TensorInfo

Image = pytest.importorskip("PIL.Image")


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def read(data: bytes, shape: tuple[int, ...], dtype: str = "float32", *options: str) -> np.ndarray:
    return read_image(data, "picture.png", "x", TensorInfo(shape, dtype), parse_image_options(list(options)))


RGB = np.random.default_rng(0).integers(0, 256, (5, 7, 3), "uint8")


def test_a_picture_is_read_by_the_command(library: Path, tmp_path: Path) -> None:
    held = np.load(DIGITS.parent / "heldout.npz")
    (tmp_path / "digit.png").write_bytes(png((held["pictures"][0] * (255 / 16)).astype("uint8")))
    done = tilewright("run", library, "--inputs", tmp_path / "digit.png", "-o", tmp_path / "y.npy", "-q")
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "y.npy").argmax() == held["labels"][0]


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((1, 3, 5, 7), (3, 5, 7, True)),
        ((3, 5, 7), (3, 5, 7, True)),
        ((1, 5, 7, 3), (3, 5, 7, False)),
        ((5, 7, 4), (4, 5, 7, False)),
        ((1, 1, 5, 7), (1, 5, 7, True)),
        ((5, 7), (1, 5, 7, True)),
        ((2, 3, 5, 7), None),
        ((1, 6, 5, 7), None),
        ((1, 3, 0, 7), None),
        ((3,), None),
        ((), None),
    ],
)
def test_which_shapes_take_a_picture(shape: tuple[int, ...], layout: object) -> None:
    assert image_layout(TensorInfo(shape, "float32")) == layout


def test_pixels_are_scaled_from_0_to_1_and_laid_out_as_the_input_is() -> None:
    np.testing.assert_allclose(read(png(RGB), (1, 5, 7, 3)), RGB[None] / 255, rtol=1e-6)
    np.testing.assert_allclose(read(png(RGB), (1, 3, 5, 7)), RGB.transpose(2, 0, 1)[None] / 255, rtol=1e-6)
    np.testing.assert_array_equal(read(png(RGB), (5, 7, 3), "uint8"), RGB)


def test_range_mean_std_and_order() -> None:
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    found = read(png(RGB), (1, 5, 7, 3), "float32", "mean=0.485,0.456,0.406", "std=0.229,0.224,0.225", "order=bgr")
    np.testing.assert_allclose(found[0], ((RGB / 255 - mean) / std)[..., ::-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(read(png(RGB), (5, 7, 3), "float32", "range=-1,1"), RGB / 127.5 - 1, atol=1e-6)
    np.testing.assert_array_equal(read(png(RGB), (5, 7, 3), "int8", "range=-128,127"), RGB.astype("int16") - 128)


def test_channels_follow_the_input() -> None:
    grey = np.arange(35, dtype="uint8").reshape(5, 7)
    np.testing.assert_array_equal(read(png(grey), (1, 3, 5, 7), "uint8")[0, 2], grey)
    np.testing.assert_array_equal(read(png(np.repeat(grey[..., None], 3, 2)), (5, 7), "uint8"), grey)
    assert (read(png(RGB), (1, 4, 5, 7), "uint8")[0, 3] == 255).all()


def test_a_picture_of_another_size_is_stretched_or_cut() -> None:
    wide = np.zeros((4, 12, 3), "uint8")
    wide[:, 4:8] = 255
    assert (read(png(wide), (1, 3, 4, 4), "uint8", "fit=crop") == 255).all()
    assert read(png(wide), (1, 3, 4, 4), "uint8")[0, 0, 0, 0] == 0


@pytest.mark.parametrize("option", ["range=1", "range=a,b", "std=0", "order=grb", "fit=pad", "scale=2", ""])
def test_wrong_options_are_refused(option: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"takes|options|one of|must not"):
        parse_image_options([option])


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(TVMError, match=r"'x', float32 of shape \(2, 3, 5, 7\).*channels"):
        read(png(RGB), (2, 3, 5, 7))
    with pytest.raises(TVMError, match=r"mean has 2 numbers.*3 channels"):
        read(png(RGB), (1, 3, 5, 7), "float32", "mean=1,2")
    with pytest.raises(TVMError, match=r"int8 does not hold.*range=-128,127"):
        read(png(RGB), (1, 3, 5, 7), "int8")


def test_damaged_pictures_are_refused_or_read() -> None:
    whole, rng = png(RGB), np.random.default_rng(0)
    for length in range(8, len(whole), 3):
        damaged = bytearray(whole)
        damaged[rng.integers(8, len(whole))] ^= 0xFF
        for content in (whole[:length], bytes(damaged)):
            try:
                read(content, (1, 3, 5, 7))
            except TVMError as error:
                assert "picture.png" in str(error)


def test_without_pillow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(TVMError, match=r"tilewright\[image\]"):
        read(b"\x89PNG\r\n\x1a\n", (1, 3, 5, 7))
