"""Translated functions, compiled for this machine and called."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.memory import Array, GuardedBuffer, number_of
from mirlo.passes.exact.translator import Argument
from mirlo.runtime.host_cpu import host_cpu
from mirlo.runtime.object_loader import compile_llvm
from mirlo.runtime.records import dataclass

LEVEL = 1
"""LLVM's level of code generation: most of the time is its, not the code's."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


@dataclass
class NativeFunction:
    """A function that takes buffers and sizes, the constants of a round, and the direction of parallel loops."""

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
    (function,) = compile_functions(module, {name: arguments})
    return function


def compile_functions(module: ModuleText, functions: Mapping[str, Sequence[Argument]]) -> list[NativeFunction]:
    """Compile a module, and return its functions of these names."""
    text = str(module).replace(") {\nentry:", ") #0 {\nentry:").replace(") noinline {", ") noinline #0 {")
    code = compile_llvm(f"{text}\n{_attributes()}\n", LEVEL)
    return [NativeFunction(name, arguments, code, code.address(name)) for name, arguments in functions.items()]


@cache
def _attributes() -> str:
    """Return the attributes of functions for this machine's vectors."""
    cpu = host_cpu()
    features = ",".join(sorted(f"+{each}" for each in cpu.features if not each[-1:].isdigit() or "sve" not in each))
    return f'attributes #0 = {{ nounwind "target-cpu"="{cpu.name}" "target-features"="{features}" }}'
