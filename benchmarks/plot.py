"""A bar chart of the ratios as SVG, which browsers show; made without a plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .report import ModelResult

ROW, BAR, LEFT, WIDTH, RIGHT, TOP = 26, 16, 190, 460, 60, 54
FASTER, SLOWER = "#2a7f4f", "#b5523b"


def ratios_svg(results: Sequence[ModelResult]) -> str:
    """One bar for each result that has a ratio; a line marks 1, the fastest peer's speed."""
    rated = [(result, ratio) for result in results if (ratio := result.ratio()) is not None]
    scale = WIDTH / max([1.25, *(ratio for _, ratio in rated)])
    height = TOP + ROW * len(rated) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-weight="bold">Speed of Tilewright over the fastest peer, fp32</text>',
        f'<text x="{LEFT + scale:.1f}" y="42" text-anchor="middle" fill="#555">1 = fastest peer</text>',
    ]
    for row, (result, ratio) in enumerate(rated):
        top = TOP + ROW * row
        label = f"{result.model}, {result.threads} thread{'s' if result.threads > 1 else ''}"
        tip = f"fastest peer: {result.fastest_peer()}"
        baseline = top + BAR - 3
        parts += [
            f'<text x="{LEFT - 8}" y="{baseline}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{ratio * scale:.1f}" height="{BAR}" '
            f'fill="{FASTER if ratio >= 1 else SLOWER}"><title>{escape(tip)}</title></rect>',
            f'<text x="{LEFT + ratio * scale + 6:.1f}" y="{baseline}">{ratio:.2f}</text>',
        ]
    line = LEFT + scale
    parts.append(f'<line x1="{line:.1f}" y1="{TOP - 6}" x2="{line:.1f}" y2="{height - 8}" stroke="#555"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
