"""Bounded processes, which parse, decode or render untrusted data with limits on time, memory and stack.

The modules of such processes import this one and little else: it imports nothing of the compiler.
"""

from mirlo.runtime.bounded import BoundedFailure, BoundedProcess, BoundedRefusal, BoundedWorker, Bounds, Places
from mirlo.runtime.bounded_process import ArgumentsRefused, Function, Result
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "ArgumentsRefused",
    "BoundedFailure",
    "BoundedProcess",
    "BoundedRefusal",
    "BoundedWorker",
    "Bounds",
    "Function",
    "Places",
    "Result",
]

record_extenders(__name__)
