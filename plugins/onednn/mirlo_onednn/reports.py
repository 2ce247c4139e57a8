"""Reports of the library's choices for the regions of a compiled model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo_onednn.native.compiled import RegionReport
from mirlo_onednn.native.program import OneDnnProgram

if TYPE_CHECKING:
    from mirlo.extend.runtime import Executable


def reports(executable: Executable) -> dict[str, RegionReport]:
    """Return, by region, the steps with the library's implementation names, and their memory."""
    loaded = executable.externals.loaded
    programs = [external.keep for external in loaded if isinstance(external.keep, OneDnnProgram)]
    return {name: report for program in programs for name, report in program.reports.items()}
