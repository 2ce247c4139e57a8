"""Translated functions, compiled for this machine and called."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

import numpy as np

from mirlo.passes.exact.ir_text import HelperText, ModuleText
from mirlo.passes.exact.memory import Array, GuardedBuffer, number_of
from mirlo.passes.exact.translator import Argument
from mirlo.runtime.host_cpu import host_cpu
from mirlo.runtime.object_loader import compile_kept, compile_llvm, define_symbol, find_symbol
from mirlo.runtime.records import dataclass

LEVEL, INLINE_LEVEL, HELPER_LEVEL = 0, 1, 2
"""LLVM's levels of code generation: for calls of helpers, for code that runs for long, for helpers."""
_helpers: dict[str, HelperText] = {}
"""The helpers that were compiled."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class ExactFunction(Protocol):
    """A function that takes buffers and sizes, the constants of a round, and the direction of parallel loops."""

    @property
    def arguments(self) -> Sequence[Argument]: ...

    def call(
        self, buffers: Sequence[GuardedBuffer | None], sizes: Mapping[str, int], table: Array, is_reversed: bool
    ) -> None:
        """Run on a buffer for each argument, None where it is a size."""


@dataclass
class NativeFunction:
    """A translated function, compiled."""

    name: str
    arguments: Sequence[Argument]
    code: object
    """Keeps the machine code in memory."""
    address: int

    def call(
        self, buffers: Sequence[GuardedBuffer | None], sizes: Mapping[str, int], table: Array, is_reversed: bool
    ) -> None:
        """Run on a buffer for each argument, None where it is a size."""
        words: list[int] = []
        for argument, buffer in zip(self.arguments, buffers, strict=True):
            words += [number_of(argument.shape[0], sizes)] if buffer is None else buffer.words
        packed = np.array(words, np.int64)
        _CALL(self.address)(packed.ctypes.data, table.ctypes.data, int(is_reversed))


def compile_function(module: ModuleText, name: str, arguments: Sequence[Argument]) -> NativeFunction:
    """Compile a module, and return its function of this name."""
    _compile_helpers(module)
    code = compile_llvm(
        _for_this_machine(str(module)), INLINE_LEVEL if module.is_inline or module.has_inline_loops else LEVEL
    )
    return NativeFunction(name, arguments, code, code.address(name))


def helper_address(module: ModuleText, name: str) -> int:
    """Compile the helpers of a module, and return the address of the one of this name."""
    _compile_helpers(module)
    return find_symbol(name)


def _compile_helpers(module: ModuleText) -> None:
    """Compile the helpers of a module that are new."""
    new = {name: helper for name, helper in module.helpers.items() if name not in _helpers}
    if new:  # loading each by itself takes most of a millisecond
        helpers = compile_kept([_for_this_machine(helper.definition) for helper in new.values()], HELPER_LEVEL)
        for name in new:
            define_symbol(name, helpers.address(name))
        _helpers.update(new)


def _for_this_machine(text: str) -> str:
    return f"{text.replace(') {', ') #0 {')}\n{_attributes()}\n"


@cache
def _attributes() -> str:
    """Return the attributes of functions for this machine's vectors."""
    cpu = host_cpu()
    features = ",".join(sorted(f"+{each}" for each in cpu.features if not each[-1:].isdigit() or "sve" not in each))
    return f'attributes #0 = {{ nounwind "target-cpu"="{cpu.name}" "target-features"="{features}" }}'
