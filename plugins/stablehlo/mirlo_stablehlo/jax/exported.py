"""Conversion of a function of JAX to a module of relax, through the StableHLO of `jax.export`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import (
    ConvertedModel,
    Dim,
    ExampleInputs,
    FromParts,
    FrontendError,
    ImportedModule,
    Interface,
    RankLayout,
    ir,
    tile_layout,
)
from mirlo.extend.frontend import dims as D
from mirlo_stablehlo.importer import import_stablehlo
from mirlo_stablehlo.jax.compiled import CompiledFunction, FunctionSignature, is_key

if TYPE_CHECKING:
    import jax
    from jax import export


class JaxImportError(FrontendError):
    """A function of JAX that cannot be converted."""


def convert_exported(model: object, example: ExampleInputs) -> ConvertedModel:
    """Convert a `jax.export.Exported`, or a function of `jax.jit` with arguments of a call."""
    from jax import export

    if isinstance(model, export.Exported):
        if example.given:
            raise JaxImportError("args, kwargs and dynamic_shapes are for a function of jax.jit: this one is exported")
        exported = model
    elif hasattr(model, "lower") and callable(model):
        exported = _export(model, example)
    else:
        raise JaxImportError(
            f"expected a jax.export.Exported or a function of jax.jit, found a {type(model).__name__}: "
            "mirlo.compile(jax.jit(f), args=(x,))"
        )
    _require_plain(exported)
    signature = FunctionSignature.of(exported)
    interface = Interface(
        signature.kept_names(), signature.outputs, [_dims(_words_of(exported.in_avals[i])) for i in signature.kept]
    )
    name = f"function '{exported.fun_name}'"
    module, store = import_stablehlo(_content(exported), name, interface)
    layouts = input_layouts(module)
    return ConvertedModel(
        ImportedModule(module, store), lambda executable: CompiledFunction(executable, signature, layouts)
    )


def input_layouts(module: ir.Module) -> list[RankLayout | None]:
    """Return each input's division among ranks; None if each rank takes all of it."""
    (main,) = (op for op in module.body.operations if op.operation.name == "func.func")
    layouts: list[RankLayout | None] = []
    for argument in main.operation.regions[0].blocks[0].arguments:
        readers = [use.owner.operation.opview for use in argument.uses]
        layouts.append(next((tile_layout(op.parts, op.order) for op in readers if isinstance(op, FromParts)), None))
    return layouts


def _content(model: export.Exported) -> bytes | str:
    """Return the program as portable bytecode, or as text if it has shardings, which need their own dialect."""
    serialized = bytes(model.mlir_module_serialized)
    return str(model.mlir_module()) if b"sdy" in serialized else serialized


def _export(function: Callable[..., object], example: ExampleInputs) -> export.Exported:
    """Export a function of `jax.jit` for CPUs."""
    import jax
    from jax import export

    if example.args is None and not example.kwargs:
        raise JaxImportError(
            "a function needs arguments of a call, arrays or jax.ShapeDtypeStruct: mirlo.compile(jax.jit(f), "
            "args=(x,)), with dynamic_shapes= for the dims that may change"
        )
    if not isinstance(example.args or (), tuple):
        raise JaxImportError(f"args: expected a tuple of arguments, found a {type(example.args).__name__}")
    args: tuple[object, ...] = tuple(example.args or ())
    kwargs = dict(example.kwargs)
    try:
        if example.dynamic_shapes is not None:
            args = export.symbolic_args_specs(args, example.dynamic_shapes)
        specs = jax.tree_util.tree_map(_spec, (args, kwargs))
        return export.export(function, platforms=["cpu"])(*specs[0], **specs[1])
    except Exception as error:
        raise JaxImportError(f"jax.export cannot trace the function: {error}") from error


def _spec(value: object) -> jax.ShapeDtypeStruct:
    import jax
    import numpy as np

    if isinstance(value, jax.ShapeDtypeStruct):
        return value
    array = value if hasattr(value, "dtype") and hasattr(value, "shape") else np.asarray(jax.numpy.asarray(value))
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _require_plain(model: export.Exported) -> None:
    """Refuse programs that need more than their arguments."""
    if len(model.platforms) != 1:
        listed = ", ".join(model.platforms)
        raise JaxImportError(f"the function is exported for {listed}: export it for one, platforms=['cpu']")
    if model.ordered_effects or model.unordered_effects:
        raise JaxImportError("the function has side effects, such as jax.debug.print: remove them")


def _words_of(argument: jax.core.ShapedArray) -> tuple[object, ...]:
    """Return the shape of an argument in the program: each key is a row of 32-bit words."""
    import jax

    words: Sequence[object] = jax.eval_shape(jax.random.key_data, argument).shape if is_key(argument.dtype) else ()
    return (*argument.shape, *words[len(argument.shape) :])


def _dims(shape: Iterable[object]) -> tuple[Dim, ...] | None:
    """Return the dims of an argument; None if an expression of JAX has no equivalent."""
    dims: list[Dim] = []
    for dim in shape:
        if isinstance(dim, int):
            dims.append(dim)
            continue
        try:
            dims.append(D.parse(str(dim)))
        except ValueError:
            return None
    return tuple(dims)
