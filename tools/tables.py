"""Text that several commands print: columns, sizes, approximations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from mirlo.runtime.names import terminal


def approximation_lines(approximations: Iterable[object]) -> Iterator[str]:
    """Yield the deviations of results from the model's definition that options permit."""
    return (f"approximated by {each}" for each in approximations)


def columns(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Return lines of aligned cells; the columns in `numbers` are aligned to the right."""
    if not rows:
        return []
    rows = [[terminal(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def number(value: float) -> str:
    """Format a number in a few characters; integers without a point."""
    return f"{value:.0f}" if abs(value) < 1e6 and value == int(value) else f"{value:.5g}"


def bytes_text(count: int) -> str:
    """Format a count of bytes with a unit."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
