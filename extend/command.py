"""The command `mirlo`, to run in this process."""

from mirlo.runtime.extenders import record_extenders
from mirlo.tools.cli import main

__all__ = [
    "main",
]

record_extenders(__name__)
