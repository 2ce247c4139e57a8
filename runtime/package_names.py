"""Names of public modules of Mirlo that packages have now: the entry point group `mirlo.names`.

`"extend.frontend.tosa_converter" = "package.module:NAME"` keeps `mirlo.extend.frontend.tosa_converter` for one version.
"""

from __future__ import annotations

import warnings
from typing import Any

from mirlo.runtime.entry_points import offered
from mirlo.runtime.known_packages import PACKAGES, install_command

GROUP = "mirlo.names"


def package_name(module: str, name: str) -> Any:
    """Return what a package has in place of `module.name`, with a warning that names its place.

    Raises `AttributeError` for other names, and `ModuleNotFoundError` with the command that installs the package.
    """
    full = f"{module.removeprefix('mirlo.')}.{name}"
    for entry in offered(GROUP):
        if entry.name == full:
            place = entry.value.replace(":", ".")
            warnings.warn(f"{module}.{name} is now {place}", DeprecationWarning, stacklevel=4)
            return entry.load()
    package = PACKAGES["names"].get(full)
    if package is None:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    what = f"{module}.{name} is in a package that is not installed: {install_command(GROUP, full)}"
    raise ModuleNotFoundError(what, name=package.replace("-", "_"))
