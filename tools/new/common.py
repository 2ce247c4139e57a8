"""Files that all new packages have."""

from __future__ import annotations

from collections.abc import Mapping

_PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1"
dependencies = ["mirlo"]

[project.optional-dependencies]
test = ["filecheck", "lit", "pytest"]

{entries}[tool.setuptools]
{contents}

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

_LIT = """'''lit's configuration.'''

# ruff: noqa: F821 (lit defines `config`)
from mirlo.testing import configure_lit

configure_lit(config, __file__, plugin="{plugin}")
"""


_ENTRY = """[project.entry-points."mirlo.{group}"]
{name} = "{value}"

"""


def files(name: str, entries: Mapping[str, str], plugin: str = "", data: str = "") -> dict[str, str]:
    """Return the project file and the configuration of lit.

    `entries` are the package's entry points by group; `plugin` is what %plugin loads; `data` are the files of a
    package that is a folder, beside its modules.
    """
    contents = f'py-modules = ["{name}"]'
    if data:
        contents = f'packages = ["{name}"]\npackage-data = {{ {name} = ["{data}"] }}'
    listed = "".join(_ENTRY.format(name=name, group=group, value=value) for group, value in entries.items())
    return {
        "pyproject.toml": _PROJECT.format(name=name, entries=listed, contents=contents),
        "tests/lit.cfg.py": _LIT.format(plugin=plugin or f"../{name}.py"),
    }


def class_name(name: str) -> str:
    """Return `FastExp` for `fast_exp`."""
    return "".join(part.capitalize() for part in name.split("_"))
