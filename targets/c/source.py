"""The C file of all regions of a module, and its header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mirlo.passes.byoc.view import ExternalModule
from mirlo.runtime.names import c_comment, c_identifier
from mirlo.targets.c.function import CFunction, is_small
from mirlo.targets.c.prelude import DLPACK, prelude

ALIGNMENT = 64


@dataclass
class CSource:
    """The source of a module."""

    module: ExternalModule

    @cached_property
    def params(self) -> tuple[str, ...]:
        """Return the names of the external constants in the order of the array `params`."""
        return tuple(name for name, array in self.module.constants.items() if not is_small(array))

    @cached_property
    def functions(self) -> list[CFunction]:
        places = {name: place for place, name in enumerate(self.params)}
        return [CFunction(function, places) for function in self.module.functions]

    @property
    def symbols(self) -> dict[str, str]:
        """Return the C function of each region."""
        return {made.function.name: made.symbol for made in self.functions}

    def text(self) -> str:
        """Return the source file."""
        title = f"Written by Mirlo, target '{c_comment(self.module.target)}'.{self._contents()}"
        regions = [made.text() for made in self.functions]
        called = {name: text for made in self.functions for name, text in made.writer.functions.items()}
        return "\n".join([prelude(title), *called.values(), *regions])

    def header(self) -> str:
        """Return the header for programs that call the functions."""
        lines = [f"/* Written by Mirlo, target '{c_comment(self.module.target)}'.{self._contents()} */", "#pragma once"]
        lines += ["#include <stddef.h>", "#include <stdbool.h>", "#include <stdint.h>", "", DLPACK]
        for made in self.functions:
            lines += [*made.prototypes, ""]
        return "\n".join(lines)

    def _contents(self) -> str:
        """Return a comment that lists the array `params`."""
        if not self.params:
            return " No constants are handed in: `params` may be NULL."
        rows = []
        for place, name in enumerate(self.params):
            array = self.module.constants[name]
            rows.append(c_comment(f"   params[{place}]: {array.dtype}{list(array.shape)} {name}"))
        return "\n   Constants are handed in, as an array of pointers:\n" + "\n".join(rows) + "\n"


def weights_blob(target: str, params: Mapping[str, np.ndarray]) -> tuple[bytes, str]:
    """Return the concatenated external constants and C code that locates them in a copy of that data."""
    blob, lines = bytearray(), []
    target = c_identifier(target)
    for place, array in enumerate(params.values()):
        blob += bytes(-len(blob) % ALIGNMENT)
        lines.append(f"  params[{place}] = (const char *)file + {len(blob)};")
        blob += np.ascontiguousarray(array).tobytes()
    count = f"#define {target.upper()}_PARAMS {len(lines)}\n#define {target.upper()}_PARAMS_BYTES {len(blob)}\n"
    what = f"/* The array that functions take as `params`, from the bytes of {target}_params.bin in memory. */\n"
    head = f"static inline void {target}_bind_params(const void *file, const void **params) {{\n"
    return bytes(blob), "" if not lines else count + what + head + "\n".join([*lines, "}", ""])
