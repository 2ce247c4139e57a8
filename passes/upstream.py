"""MLIR's own passes, by name, mixed with those in Python."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, new_context, passmanager
from mirlo.passes.options import OptionError, scan_options
from mirlo.passes.registry import CONTAINED, CONTAINED_WITHOUT_OPTIONS
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

STATISTICS = "pass-statistics"
"""The option of a session with which MLIR prints the statistics of its passes: `list` or `pipeline`."""


@dataclass(frozen=True)
class UpstreamPass:
    """One upstream pass or pass pipeline; `options` are kept as written."""

    name: str
    options: str = ""
    anchor: str | None = None
    """The only kind of operation it runs on; None for any."""

    def run(self, op: ir.OpView, session: Session) -> None:
        self.manager(op.operation, session).run(op.operation)

    def is_contained(self) -> bool:
        """Return whether it changes nothing but the operation that it runs on."""
        return self.name in CONTAINED or (self.name in CONTAINED_WITHOUT_OPTIONS and not self.options)

    def manager(self, operation: ir.Operation, session: Session) -> passmanager.PassManager:
        """Return an MLIR pass manager, for operations of this kind and context, with this pass only."""
        manager = passmanager.PassManager.parse(f"{operation.name}({self})", operation.context)
        # The runner verifies after each pass.
        manager.enable_verifier(False)
        if STATISTICS in session.options:
            manager.enable_statistics(passmanager.PassDisplayMode[session.options[STATISTICS].upper()])
        return manager

    def __str__(self) -> str:
        return f"{self.name}{{{self.options}}}" if self.options else self.name


def run_unverified(passes: str, operation: ir.Operation) -> None:
    """Run upstream passes on an operation of their anchor, for callers that verify what all of them leave.

    Verification after each of them takes about as long as they do.
    """
    manager = passmanager.PassManager.parse(passes)
    manager.enable_verifier(False)
    manager.run(operation)


def find_upstream(name: str, options: str = "") -> UpstreamPass | None:
    """Return the upstream pass with this name, or None. Raise `OptionError` for invalid options."""
    upstream = _find(name, options)
    # Each occurrence in a pipeline is a separate object: instruments tell them apart by identity.
    return None if upstream is None else replace(upstream)


@functools.cache
def _find(name: str, options: str) -> UpstreamPass | None:
    if _parser_error(f"any({name})", "does not refer to"):
        return None
    result = UpstreamPass(name, options, _restriction(name))
    complaint = _parser_error(f"{result.anchor or 'any'}({result})") if options else None
    if complaint:
        raise _option_error(result, complaint)
    return result


def default_options(name: str, anchor: str | None = None) -> str:
    """Return all options of an upstream pass with their defaults, as MLIR prints them."""
    printed = str(_parse(f"{anchor or 'any'}({name})"))
    match = re.search(r"\{(.*)\}\)$", printed, re.DOTALL)
    return match[1].strip() if match else ""


def _restriction(name: str) -> str | None:
    complaint = _parser_error(f"builtin.module({name})", "restricted to")
    match = re.search(r"restricted to '([\w.]+)'", complaint or "")
    return match[1] if match else None


def _parser_error(pipeline: str, containing: str = "") -> str | None:
    """Return the error of MLIR's parser for a pipeline if it contains this text."""
    try:
        _parse(pipeline)
    except ValueError as error:
        return str(error) if containing in str(error) else None
    return None


def _parse(pipeline: str) -> passmanager.PassManager:
    # Parsing needs a context, and the result is the same in all.
    with _silent_stderr():
        return passmanager.PassManager.parse(pipeline, ir.Context.current or _spare_context())


@functools.cache
def _spare_context() -> ir.Context:
    return new_context(())


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence the process's standard error: MLIR prints part of an option's error there directly."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _option_error(step: UpstreamPass, complaint: str) -> OptionError:
    options = scan_options(step.options)
    unknown = re.search(r"no such option ([\w.-]+)", complaint)
    known = [key for key, *_ in scan_options(default_options(step.name, step.anchor))]
    for key, value, key_at, value_at in options:
        if unknown and key == unknown[1]:
            near = difflib.get_close_matches(key, known, n=1)
            has = f"; it has: {', '.join(known)}" if known else "; it has no options"
            hint = f"; did you mean '{near[0]}'?" if near else has
            return OptionError(f"pass '{step.name}' has no option '{key}'{hint}", key_at)
        if not unknown and _parser_error(f"{step.anchor or 'any'}({step.name}{{{key}={value}}})"):
            return OptionError(f"pass '{step.name}' cannot take '{value}' for its option '{key}'", value_at)
    return OptionError(f"pass '{step.name}' cannot take these options", 0)
