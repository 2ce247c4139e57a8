"""How an option of a compilation is declared, by Mirlo (options.py) and by packages (package_options.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirlo.runtime.errors import MirloError
from mirlo.runtime.options import OptionDeclaration, OptionFlag, ValueKind, declare
from mirlo.runtime.records import dataclass

WITH_CACHES, FRAMEWORKS = "models with caches of keys and values", "models of other frameworks"


class CompileOptionError(MirloError, ValueError):
    """An option with a value that it does not take."""

    error_code = "MIR0615"
    remedy = "Give the option a value that the message expects; docs/options.md has all of them."


@dataclass(frozen=True)
class CompileOption(OptionDeclaration):
    """The declaration of an option of a compilation."""

    key: Callable[[Any], object] | None = lambda value: value
    """Return what stands for a value in cache keys, an `object` for what no key can hold; None where results are the
    same for all values."""
    own_pass: str = ""
    """The pass that does what the option asks for: pipelines of the caller name it themselves."""
    of_model: bool = False
    """Whether values name parts of one model, and cannot stand for many models."""
    only_for: str = ""
    """The models that have the option, `WITH_CACHES` or `FRAMEWORKS`; empty for all."""


def compile_option(default: object, help: str, *flags: OptionFlag, kind: ValueKind, **details: Any) -> Any:
    """Declare a field of `CompileArguments`; `details` are those of `CompileOption`."""
    return declare(default, CompileOption(help, flags, kind, **details), is_shown=details.get("key", True) is not None)


def unkeyed(value: object) -> object:
    """Return a cache key for a value with which a compilation cannot be cached."""
    return value and object()
