"""Parsing of programs: what MLIR reports becomes the text of an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import diagnostics_to
from mirlo.frontends.foreign import FrontendError
from mirlo.runtime.callbacks import Expected, checked, is_text

_EXPLANATION = Expected("a text", is_text)


@contextmanager
def parsing(what: str, error: type[FrontendError], explain: Callable[[str], str] = str) -> Iterator[None]:
    """Parse in the current context, where dialects may be unknown; failures are errors that begin with `what`.

    Attributes and operations of other dialects are kept as they are: what a front end does not read may stay.
    """
    context = ir.Context.current
    problems: list[str] = []

    def note(diagnostic: ir.Diagnostic) -> bool:
        problems.append(str(diagnostic.message))
        return True

    before = context.allow_unregistered_dialects
    context.allow_unregistered_dialects = True
    try:
        with diagnostics_to(context, note):
            yield
    except (ir.MLIRError, ValueError) as problem:
        explanation = checked(explain, _EXPLANATION, what, error)("; ".join(problems) or str(problem))
        raise error(f"{what}: {explanation}") from None
    finally:
        context.allow_unregistered_dialects = before
