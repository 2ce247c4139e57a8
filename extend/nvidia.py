"""Code generators for libraries of NVIDIA, which target `nvvm` calls."""

from mirlo.runtime.extenders import record_extenders
from mirlo.targets.nvvm.library_loading import NvidiaLibrary
from mirlo.targets.nvvm.library_program import DeviceState, LibraryCall
from mirlo.targets.nvvm.library_values import NvidiaLibraryCalls, Values

__all__ = [
    "DeviceState",
    "LibraryCall",
    "NvidiaLibrary",
    "NvidiaLibraryCalls",
    "Values",
]

record_extenders(__name__)
