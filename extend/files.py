"""Forms of files: programs of other systems that `mirlo.compile` and the commands open.

    [project.entry-points."mirlo.file_forms"]
    NAME = "package:FORM"

names a `FileForm` or a tuple of them. It is loaded for each file that Mirlo does not open itself, before the compiler:
this module imports little, and so should the module that the entry point names.
"""

from mirlo.frontends.files import BYTECODE_PREFIX, FileForm, names_dialect, register_file_form
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "BYTECODE_PREFIX",
    "FileForm",
    "names_dialect",
    "register_file_form",
]

record_extenders(__name__)
