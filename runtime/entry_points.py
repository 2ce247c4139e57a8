"""Entry points and versions of installed packages, read from their `.dist-info` folders.

`importlib.metadata` loads 45 modules, 40 ms; the short text files that are read here take 1 ms for all packages.
Packages in archives on the import path are not found: the libraries that Mirlo needs do not load from archives either.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple


class EntryPoint(NamedTuple):
    """A name that an installed package offers in a group: `name = "module:attribute"`."""

    name: str
    value: str
    group: str
    folder: str = ""
    """The folder with the metadata of the package."""

    def load(self) -> Any:
        """Import the module, and return the attribute that the entry names, or the module."""
        module, _, attributes = self.value.partition("[")[0].strip().partition(":")
        value: Any = import_module(module.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            value = getattr(value, attribute)
        return value

    def load_for(self, what: str, error_type: type[Exception]) -> object:
        """Return the object that the entry names; raise an error with the entry and its package if that fails."""
        try:
            loaded: object = self.load()
        except (ImportError, AttributeError) as error:
            raise error_type(f"the {what} '{self.name}' of {self.package} does not load: {error}") from error
        return loaded

    def unexpected(self, value: object, expected: str) -> str:
        """Return the message for an entry that names another value than the expected one."""
        from mirlo.runtime.callbacks import describe_value  # imports `inspect`, which no command needs to start

        where = f"the entry point '{self.name}' of {self.package} in {self.group}, {self.value}"
        return f"{where}, names {describe_value(value)}: expected {expected}"

    @property
    def package(self) -> str:
        """Return the name of the package as it is installed."""
        return _header(self.folder, "Name") or self.value


def offered(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, of all installed packages."""
    return list(_all(tuple(sys.path)).get(group, ()))


def declared_groups() -> list[str]:
    """Return the groups of Mirlo, by their names, in which packages declare entry points."""
    return sorted(group for group in _all(tuple(sys.path)) if group.startswith("mirlo."))


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    folder = _distributions(tuple(sys.path)).get(_normalized(package))
    return folder and _header(folder, "Version")


@cache
def _all(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    """Return all entry points by group: those of the first package of each name on the import path."""
    groups: dict[str, list[EntryPoint]] = {}
    for folder in _distributions(path).values():
        for entry in _parsed(_text(folder, "entry_points.txt"), folder):
            groups.setdefault(entry.group, []).append(entry)
    return {group: tuple(entries) for group, entries in groups.items()}


@cache
def _distributions(path: tuple[str, ...]) -> dict[str, str]:
    """Return the metadata folders of installed packages by their normalized names."""
    folders: dict[str, str] = {}
    for place in path:
        for folder in _metadata_folders(place or os.curdir):
            name = os.path.basename(folder).rpartition(".")[0].partition("-")[0]
            folders.setdefault(_normalized(name), folder)
    return folders


def _metadata_folders(place: str) -> Iterator[str]:
    try:
        names = os.listdir(place)
    except OSError:
        names = []  # an archive, or a folder that does not exist
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            yield os.path.join(place, name)


def _parsed(text: str, folder: str) -> Iterator[EntryPoint]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.strip(), group, folder)


def _header(folder: str, name: str) -> str | None:
    """Return a line of the metadata of a package, by its name."""
    for line in (_text(folder, "METADATA") or _text(folder, "PKG-INFO")).splitlines():
        key, _, value = line.partition(":")
        if key.lower() == name.lower():
            return value.strip()
        if not line:
            break
    return None


def _text(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
