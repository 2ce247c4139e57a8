"""Reading StableHLO: text, or the portable bytecode that `jax.export` writes."""

from __future__ import annotations

import re

from mirlo.dialects.bindings import ir, stablehlo
from mirlo.frontends.mlir.parse import parsing
from mirlo.frontends.stablehlo.detect import is_portable
from mirlo.frontends.stablehlo.errors import StablehloImportError


def parse(content: bytes | str, name: str) -> ir.Module:
    """Parse a module in the current context, into which the dialect is loaded; `name` is for errors."""
    extension = stablehlo()
    context = ir.Context.current
    extension.register_dialect(context)
    with parsing(f"{name} is not valid StableHLO", StablehloImportError, _explained):
        if isinstance(content, bytes) and is_portable(content):
            result: ir.Module = extension.deserialize_portable_artifact(context, content)
            return result
        return ir.Module.parse(_without_meshes(content))


_MESH = re.compile(rb"^ *sdy\.mesh @[^\n]*<\[(?:\"\w+\"=1(?:, )?)*\]>[^\n]*$", re.MULTILINE)
_CONSTRAINT = re.compile(rb"\bsdy\.sharding_constraint (%[\w#]+) <[^>\n]*>")


def _without_meshes(content: bytes | str) -> bytes:
    """Return text without what the dialect sdy says of a mesh of one device: JAX writes it for typed keys."""
    text = content.encode() if isinstance(content, str) else content
    if b"sdy.mesh" not in text:
        return text
    return _CONSTRAINT.sub(rb"stablehlo.optimization_barrier \1", _MESH.sub(b"", text))


def _explained(text: str) -> str:
    if "chlo" in text:
        return (
            f"{text}\nThe dialect chlo belongs to JAX: export the function, jax.export.export(jax.jit(f))(...), whose "
            "module has StableHLO only"
        )
    if "mhlo" in text:
        return f"{text}\nThe dialect mhlo came before StableHLO: convert it, stablehlo-translate or mlir-hlo-opt"
    return text
