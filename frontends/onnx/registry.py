"""The table of converters: which function imports an operator, by domain, name and operator set version."""

from __future__ import annotations

import importlib
import pkgutil
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Converter = Callable[[Any], Any]
"""Takes a `Node` and returns the value of its output, a tuple of them, or NotImplemented to have the operator's
function body expanded instead."""


@dataclass
class _Versions:
    since: list[int] = field(default_factory=list)
    converters: list[Converter | None] = field(default_factory=list)


class Registry:
    """Converters by (domain, operator), each valid from one version until the next."""

    def __init__(self) -> None:
        self._table: dict[tuple[str, str], _Versions] = {}

    def add(self, domain: str, operator: str, since: int, function: Converter | None) -> None:
        versions = self._table.setdefault((domain, operator), _Versions())
        at = bisect_right(versions.since, since)
        if at and versions.since[at - 1] == since:
            raise ValueError(f"operator {operator} of domain '{domain}' has two converters since version {since}")
        versions.since.insert(at, since)
        versions.converters.insert(at, function)

    def find(self, domain: str, operator: str, version: int) -> Converter | None:
        versions = self._table.get((domain, operator))
        at = bisect_right(versions.since, version) if versions else 0
        return versions.converters[at - 1] if versions and at else None

    def since(self, domain: str, operator: str) -> tuple[int, ...]:
        """Versions from which the operator is supported."""
        versions = self._table.get((domain, operator))
        if versions is None:
            return ()
        return tuple(s for s, c in zip(versions.since, versions.converters, strict=True) if c is not None)

    def operators(self) -> list[tuple[str, str]]:
        return sorted(self._table)


CONVERTERS = Registry()
FOLDERS = Registry()
"""Operators that import time can compute on known values; same form, but they return numpy arrays."""


def converter(*operators: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register a function as the converter of these operators, from operator set version `since` on."""

    def register(function: Converter) -> Converter:
        for operator in operators:
            CONVERTERS.add(domain, operator, since, function)
        return function

    return register


def removed(operator: str, since: int) -> None:
    """Register that newer operator sets no longer have an operator."""
    CONVERTERS.add("", operator, since, None)


def folder(*operators: str) -> Callable[[Converter], Converter]:
    """Register a function that computes these operators on known values."""

    def register(function: Converter) -> Converter:
        for operator in operators:
            FOLDERS.add("", operator, 1, function)
        return function

    return register


@cache
def load_converters() -> None:
    """Import every file of `ops/`: each registers what it has."""
    from mirlo.frontends.onnx import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
