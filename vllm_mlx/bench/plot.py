"""Line charts as SVG, one below the other: no plotting library for three polylines."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 220, 70, 30
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a value for each point on the horizontal axis."""

    name: str
    values: Sequence[float]


def chart(over: Sequence[float], label: str, panels: Sequence[tuple[str, Sequence[Series]]]) -> str:
    """An SVG document: each panel is a title and its lines, all over the same points (at least one)."""
    height = len(panels) * (_HEIGHT + _TOP) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for row, (title, lines) in enumerate(panels):
        parts.append(f'<g transform="translate(0,{row * (_HEIGHT + _TOP)})">{_panel(over, title, lines)}</g>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{height - 10}" text-anchor="middle">{escape(label)}</text></svg>')
    return "\n".join(parts)


def _panel(over: Sequence[float], title: str, lines: Sequence[Series]) -> str:
    top = max((value for line in lines for value in line.values), default=0) or 1
    first, last = over[0], over[-1]
    right, bottom = _WIDTH - 20, _TOP + _HEIGHT - 40

    def x(value: float) -> float:
        return _LEFT + (right - _LEFT) * ((value - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * value / top

    parts = [f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for share in (0, 0.5, 1):
        level = y(share * top)
        parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{level:.1f}" y2="{level:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{share * top:.4g}</text>')
    parts += [f'<text x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>' for value in over]
    for index, line in enumerate(lines):
        colour = _COLOURS[index % len(_COLOURS)]
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(over, line.values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_LEFT + 200 + 90 * index}" y="18" fill="{colour}">{escape(line.name)}</text>')
    return "".join(parts)
