"""Sizes for dynamic dims of a model that is run: those of the command line, and small ones for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.runtime.errors import InputError
from mirlo.tools.cli.arguments import Shapes
from mirlo.tools.cli.errors import CommandError

if TYPE_CHECKING:
    from mirlo.runtime.artifact import TensorSpec

SMALL_SIZES = (8, 16, 64, 224)
"""What dims other than batches are tried with, one after the other: a sentence first, an image last."""


def sizes_of_shapes(specs: Sequence[TensorSpec], shapes: Shapes, model: str) -> dict[str, int]:
    """Return the sizes of dynamic dims that follow from the shapes of some inputs."""
    dims: dict[str, int] = {}
    by_name = {spec.name: spec for spec in specs}
    for name, shape in shapes.items():
        spec = by_name.get(name)
        if spec is None:
            raise CommandError(f"{model}: a shape is given for '{name}'; inputs: {', '.join(map(str, specs))}")
        agrees = len(shape) == len(spec.shape)
        for dim, size in zip(spec.shape, shape, strict=False):
            if isinstance(dim, str) and isinstance(size, int):
                agrees = agrees and dims.setdefault(dim, size) == size
            else:
                agrees = agrees and dim == size
        if not agrees:
            raise CommandError(f"{model}: input {spec} cannot have the shape {'x'.join(map(str, shape))}")
    return dims


def with_small_sizes(
    specs: Sequence[TensorSpec], known: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], list[str]]]:
    """Yield sizes for all dynamic dims, small ones first, and the symbols whose sizes are invented.

    A dim that is computed from others, such as `past + 1`, gets the size that follows from theirs.
    """
    from mirlo.dialects.core import dims as D

    texts = {text: D.parse(text) for spec in specs for text in spec.shape if isinstance(text, str)}
    symbols = {name for dim in texts.values() for name in D.symbols_of(dim)}
    # A symbol that only computed dims depend on is made up as well, unless all of these are known.
    missing = sorted(
        {name for text, dim in texts.items() if text not in known for name in D.symbols_of(dim)} - set(known)
    )
    batches = {spec.shape[0] for spec in specs if len(spec.shape) > 1}
    for size in SMALL_SIZES if missing else (0,):
        sizes = {name: 1 if name in batches else size for name in missing}
        values = {name: known[name] for name in symbols if name in known} | sizes
        chosen: dict[str, int] = dict(values)
        for text, dim in texts.items():
            dim_size = known.get(text, D.substitute(dim, values))
            if not isinstance(dim_size, int) or dim_size < 0:
                raise InputError(f"the size of the dim '{text}' is not known: give it with --dim")
            chosen[text] = dim_size
        yield chosen, missing
        if not set(missing) - batches:
            return
