"""Reading StableHLO: text, or the portable bytecode that `jax.export` writes."""

from __future__ import annotations

from mirlo.extend.frontend import ir, parsing, stablehlo
from mirlo_stablehlo.detect import is_portable
from mirlo_stablehlo.errors import StablehloImportError
from mirlo_stablehlo.sdy import generic_form, has_shardy


def parse(content: bytes | str, name: str) -> ir.Module:
    """Parse a module in the current context, into which the dialect is loaded; `name` is for errors."""
    extension = stablehlo()
    context = ir.Context.current
    extension.register_dialect(context)
    if isinstance(content, bytes) and is_portable(content) and has_shardy(content):
        raise StablehloImportError(
            "the bytecode has shardings of Shardy, whose dialect the MLIR bindings lack: write the program as text, "
            "Exported.mlir_module()"
        )
    with parsing(f"{name} is not valid StableHLO", StablehloImportError, _explained):
        if isinstance(content, bytes) and is_portable(content):
            result: ir.Module = extension.deserialize_portable_artifact(context, content)
            return result
        return ir.Module.parse(_generic(content))


def _generic(content: bytes | str) -> bytes | str:
    """Return text with Shardy's operations, whose dialect is not available, in generic form."""
    text = content.decode("utf-8", "surrogateescape") if isinstance(content, bytes) else content
    return generic_form(text).encode("utf-8", "surrogateescape") if "sdy." in text else content


def _explained(text: str) -> str:
    if "chlo" in text:
        return (
            f"{text}\nThe dialect chlo belongs to JAX: export the function, jax.export.export(jax.jit(f))(...), whose "
            "module has StableHLO only"
        )
    if "mhlo" in text:
        return f"{text}\nThe dialect mhlo came before StableHLO: convert it, stablehlo-translate or mlir-hlo-opt"
    return text
