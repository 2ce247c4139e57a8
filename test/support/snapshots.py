"""Tables that tests compare: checksums of what the compiler and its tools make of many small cases.

python test/support/snapshots.py                          # writes all tables again, after a change that is meant
python test/support/snapshots.py targets/c/planned.txt    # writes one
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from mirlo.testing.snapshots import assert_snapshot as compare

TESTS = Path(__file__).resolve().parents[1]
WRITE = "python test/support/snapshots.py"


def assert_snapshot(path: str, lines: Iterable[str]) -> None:
    """Compare lines with those of a table below `test`."""
    compare(TESTS / path, lines, f"{WRITE} {path}")


def tables() -> dict[str, Callable[[], Iterable[str]]]:
    """Return what makes the lines of each table."""
    folders = (
        "conformance", "frontends/onnx", "../plugins/stablehlo/tests/support", "../plugins/llm/tests/support",
    )  # fmt: skip
    sys.path += [str(TESTS / folder) for folder in folders]
    import declared_options
    import drawn_cases
    import imported_attributes
    import imported_nodes
    import imported_programs
    import lowered_kernels
    import planned_kernels
    import printed_scripts
    import request_bodies
    import stablehlo_programs

    modules = (
        planned_kernels,
        lowered_kernels,
        imported_attributes,
        imported_nodes,
        imported_programs,
        stablehlo_programs,
        printed_scripts,
        drawn_cases,
        declared_options,
        request_bodies,
    )
    return {path: lines for module in modules for path, lines in module.SNAPSHOTS.items()}


def main(paths: list[str]) -> None:
    """Write tables, or all of them."""
    made = tables()
    for path in paths or made:
        (TESTS / path).write_text("".join(f"{line}\n" for line in made[path]()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
