"""Complex numbers and Fourier transforms of PyTorch programs, beside eager torch: errors up to 1e-5 of the largest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilewright
from tilewright.ir.errors import UnsupportedError


class Of(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        """Call the function."""
        return self.function(*tensors)


def check(compiled: Any, module: torch.nn.Module, *given: torch.Tensor) -> None:
    expected, found = module(*given), compiled(*given)
    if isinstance(expected, torch.Tensor):
        expected, found = [expected], [found]
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        if b.numel():
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5 * max(1, float(b.abs().max())))


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def transforms(x: Any, y: Any) -> Any:
    """All kinds of transforms, of x (3, 5) and y (2, 3, 8)."""
    z, fft = torch.complex(x, 2 * x), torch.fft
    whole = [fft.fft(z, norm="ortho"), fft.ifft(z, n=7), fft.fft2(y), fft.rfft(x), fft.rfft2(y, norm="forward")]
    reals = [fft.irfft(z, n=9), fft.irfft(z), fft.irfft2(fft.rfft2(y), s=(3, 8)), fft.hfft(z), fft.ihfft(x).real]
    return [*map(torch.view_as_real, whole), *reals, fft.fftshift(x)]


def arithmetic(x: Any, y: Any) -> Any:
    """Sums, products, quotients and parts of complex numbers."""
    a, b = torch.complex(x, y), torch.complex(y, 1 - x)
    c = (2 * a - b / (a + 3j) + b * x) * (1 + 2j) / 4 + torch.exp(0.1 * a) - b.conj() * a + torch.zeros_like(a)
    moved = torch.cat([c, a], 1)[:, 1:].transpose(0, 1).unsqueeze(0).reshape(-1, 1, x.shape[0]).flip(0)
    products = torch.view_as_real(a @ b.T), torch.add(a, b, alpha=3).real
    halves = a.split(2, dim=1)
    return c.real, c.imag, torch.view_as_real(moved), c.abs(), moved.sum(0).angle(), *products, halves[-1].imag


def test_transforms() -> None:
    module = Of(transforms)
    given = random(3, 5), random(2, 3, 8)
    check(tilewright.compile(module.eval(), given), module, *given)


@pytest.mark.parametrize("length", [1, 127, 400])
def test_lengths_that_are_short_prime_and_split(length: int) -> None:
    module = Of(lambda x: torch.view_as_real(torch.fft.rfft(x)))
    check(tilewright.compile(module.eval(), (random(2, length),)), module, random(2, length))


def test_arithmetic() -> None:
    module = Of(arithmetic)
    given = random(4, 5), random(5, 4).T.contiguous()
    check(tilewright.compile(module.eval(), given), module, *given)


def test_a_spectrogram_and_its_inverse_of_any_batch() -> None:
    window = torch.hann_window(16)

    def spectrogram(x: Any) -> Any:
        spectrum = torch.stft(x, 16, hop_length=4, window=window, return_complex=True)
        return spectrum.abs() ** 2, torch.istft(spectrum, 16, hop_length=4, window=window)

    module = Of(spectrogram).eval()
    shapes = {"tensors": ({0: torch.export.Dim("batch", min=1, max=99)},)}
    compiled = tilewright.compile(module, (random(2, 64),), dynamic_shapes=shapes)
    for batch in (1, 2, 7):
        check(compiled, module, random(batch, 64))


class Rotary(torch.nn.Module):
    """Positions of a Llama that keeps them as complex numbers in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.1, 0.01, 0.001]))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, x: Any) -> Any:
        """Return x (batch, 5, heads, 8) turned by position."""
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[:, None]).flatten(3)


def test_a_buffer_of_complex_numbers() -> None:
    module = Rotary().eval()
    check(tilewright.compile(module, (random(2, 5, 3, 8),)), module, random(2, 5, 3, 8))


def test_the_backend_of_torch_compile_takes_them() -> None:
    module = Of(lambda x: torch.fft.rfft(x * 2).abs()).eval()
    torch._dynamo.reset()
    check(torch.compile(module, backend="tilewright", fullgraph=True), module, random(3, 12))


@pytest.mark.parametrize(
    ("function", "dtype", "message"),
    [
        (torch.fft.fft, torch.float32, "the program returns complex numbers; let it return torch.view_as_real of them"),
        (torch.abs, torch.complex64, "inputs, results and states of complex numbers"),
        (lambda x: torch.fft.fft(x).cumsum(0).abs(), torch.float32, r"aten.cumsum.default \(complex numbers; write"),
    ],
)
def test_what_is_refused_is_named(function: Callable[..., Any], dtype: torch.dtype, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        tilewright.compile(Of(function).eval(), (torch.ones(3, dtype=dtype),))
