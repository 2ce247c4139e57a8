"""The front end for JAX: exported programs and functions of `jax.jit`. JAX is imported with the first program."""

from __future__ import annotations

from mirlo.extend.frontend import ConvertedModel, ExampleInputs


class _JaxFrontend:
    """Opens `jax.export.Exported` and functions of `jax.jit`."""

    def convert(self, model: object, example: ExampleInputs) -> ConvertedModel:
        """Convert a program of JAX."""
        from mirlo_stablehlo.jax.exported import convert_exported

        return convert_exported(model, example)


FRONTEND = _JaxFrontend()
