"""Parts of SVG drawings: frames, legends, lines, text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirlo.runtime.names import html

WIDTH, HEIGHT = 760, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 50
COLORS = ("#1f6fb4", "#d8660b", "#2d9348", "#c02c2f", "#8357ae", "#7f5146", "#cf5fa9", "#5f6b6d")


def frame(title: str, x_title: str, y_title: str, height: int = HEIGHT) -> list[str]:
    """Return the start of an SVG image with its titles."""
    middle = (TOP + height - BOTTOM) / 2
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{html(title)}</text>',
        text((LEFT + WIDTH - RIGHT) / 2, height - 12, x_title, "middle"),
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{y_title}</text>',
    ]


def legend(kinds: Sequence[str]) -> Iterator[str]:
    for index, kind in enumerate(kinds):
        at = TOP + 16 + 20 * index
        yield f'<circle cx="{WIDTH - RIGHT + 20}" cy="{at}" r="6" fill="{COLORS[index % len(COLORS)]}"/>'
        yield text(WIDTH - RIGHT + 32, at + 4, kind, "start")


def circle(x: float, y: float, radius: float, color: int, text: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{COLORS[color % len(COLORS)]}" fill-opacity="0.55">'
        f"<title>{html(text)}</title></circle>"
    )


def line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html(text)}</text>'


def rectangle(x: float, y: float, width: float, height: float, color: int, title: str) -> str:
    """Return a rectangle that shows its title under the pointer."""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{max(height, 0.3):.2f}" '
        f'fill="{COLORS[color % len(COLORS)]}" fill-opacity="0.7" stroke="white" stroke-width="0.4">'
        f"<title>{html(title)}</title></rect>"
    )
