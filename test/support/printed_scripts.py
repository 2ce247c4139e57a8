"""Operators and their prim functions as script, which is parsed again to verify that it is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from snapshots import checksum

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.tools.conformance.case import ANY, TABLE
from mirlo.tools.conformance.check import names as load_cases
from mirlo.tools.conformance.programs import module_of, operator_program

EVERY = 4
"""One operator in so many is legalized."""


def scripts() -> Iterator[str]:
    """Yield checksums of the scripts of each operator's graph, and of what it is legalized to."""
    load_cases()
    for number, operator in enumerate(sorted(name for name in TABLE.makers if "." not in name)):
        kinds = [kind for kind in ANY if TABLE.cases(operator, kind)]
        kind = kinds[number % len(kinds)]
        with make_context(), ir.Location.unknown():
            module, _ = module_of([operator_program(operator, TABLE.cases(operator, kind)[-1])])
            texts = [mirlo.script_of(module)]
            if number % EVERY == 0:
                Pipeline("legalize").run(module, Session(), verify_each=False)
                texts.append(mirlo.script_of(module))
        is_embedded = ", some as MLIR" if any("mlir(" in text for text in texts) else ""
        yield f"{operator} {kind}: {' '.join(map(checksum, texts))}{is_embedded}"


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {"frontends/script/scripts.txt": scripts}
"""The table, below `test`."""
