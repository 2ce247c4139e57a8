"""Shardings of programs, of Shardy and of XLA, as layouts over ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.extend.frontend import RankLayout, Split, UnsupportedOperation, ir, is_regular, tile_layout

SHARDY, XLA = "sdy.sharding", "mhlo.sharding"
"""Attributes with a sharding, in Shardy's and in XLA's form."""
MOST_DIMS = 64
"""Most dims of a sharding."""
AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"(?::\((\d{1,9})\)(\d{1,9}))?')
_MESH_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"\s*=\s*(\d{1,9})')
_SHARDING = re.compile(r'<\s*(@[\w.$]+|@"[^"]*"|mesh<.*?>)\s*,\s*\[([^\]]*)\]\s*([^>]*)>')
_TILES = re.compile(r"\{devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))(.*)\}")


@dataclass(frozen=True)
class Mesh:
    """Axes of ranks: their sizes by name, in row-major order, and the rank at each position."""

    axes: dict[str, int]
    order: tuple[int, ...]

    def split(self, name: str, before: int = 1, size: int | None = None) -> Split:
        """Return the coordinate of each rank along an axis, or along the minor part of it after `before`."""
        if name not in self.axes:
            raise UnsupportedOperation(f"names the axis '{name}', which the mesh does not have")
        whole = self.axes[name]
        own = whole // before if size is None else size
        if own < 1 or before < 1 or whole % (before * own):
            raise UnsupportedOperation(f"names a part ({before}){own} of the axis '{name}' of {whole}")
        inner = math.prod(list(self.axes.values())[list(self.axes).index(name) + 1 :]) * (whole // before // own)
        held = [0] * len(self.order)
        for place, rank in enumerate(self.order):
            held[rank] = place // inner % own
        return tuple(held)


def read_mesh(text: str, ranks: int) -> Mesh:
    """Return the mesh of `<["x"=2, "y"=2], device_ids=[...]>`."""
    listed, _, rest = text.partition("]")
    axes = {name: int(size) for name, size in _MESH_AXIS.findall(listed)}
    named = re.search(r"device_ids\s*=\s*\[([\d, ]*)\]", rest)
    if not axes and named:
        return Mesh({}, tuple(range(ranks)))
    count = math.prod(axes.values()) if len(axes) <= MOST_DIMS else 0
    order = tuple(_numbers(named.group(1).replace(" ", "")) if named else range(min(count, ranks)))
    if count != ranks or sorted(order) != list(range(ranks)):
        raise UnsupportedOperation(
            f"has a mesh of {count} devices, but the program has {ranks} processes: expected a mesh of all of them"
        )
    return Mesh(axes, order)


@dataclass(frozen=True)
class ProgramSharding:
    """A sharding in a program."""

    layout: RankLayout
    is_open: bool = False
    """Whether the program leaves some dims to the compiler."""


def read_shardings(
    text: str, meshes: dict[str, Mesh], ranks: int, axes: Sequence[str] | None = None
) -> list[ProgramSharding]:
    """Return Shardy's shardings in a text, over the axes of the mesh: `<@mesh, [{"x"}, {?}]>`."""
    results = []
    for mesh_text, dims, rest in _SHARDING.findall(text):
        mesh = meshes.get(mesh_text[1:].strip('"')) if mesh_text[0] == "@" else read_mesh(mesh_text[4:], ranks)
        if mesh is None:
            raise UnsupportedOperation(f"names the mesh {mesh_text}, which the module does not have")
        if "unreduced" in rest:
            raise UnsupportedOperation(
                f"has an unreduced sharding, '{rest.strip()}': expected each rank's value whole or divided"
            )
        results.append(_read_dims(dims, mesh, axes))
    return results


def _read_dims(text: str, mesh: Mesh, axes: Sequence[str] | None) -> ProgramSharding:
    braces = re.findall(r"\{([^}]*)\}", text)
    if len(braces) > MOST_DIMS:
        raise UnsupportedOperation(f"has a sharding of {len(braces)} dims: at most {MOST_DIMS} are supported")
    dims: list[Split | None] = []
    for brace in braces:
        split: Split | None = None
        for name, before, size in AXIS.findall(brace):
            if axes is not None and name not in axes:
                continue
            own = mesh.split(name, *((int(before), int(size)) if size else ()))
            width = max(own) + 1
            split = own if split is None else tuple(a * width + b for a, b in zip(split, own, strict=True))
        dims.append(split if split is not None and max(split) else None)
    if not is_regular(dims):
        raise UnsupportedOperation(f"divides several dims along one axis, [{text}]")
    return ProgramSharding(RankLayout(tuple(dims)), "?" in text)


def read_xla_sharding(text: str, rank: int, ranks: int) -> RankLayout | None:
    """Return the layout of XLA's `{devices=[2,1,2]<=[4] last_tile_dim_replicate}`; None for `{manual}`."""
    if text.replace(" ", "") in ("{replicated}", "{maximaldevice=0}", ""):
        return RankLayout((None,) * rank)
    if text.strip() == "{manual}":
        return None
    match = _TILES.fullmatch(text.strip())
    if match is None:
        raise UnsupportedOperation(f"has the sharding '{text:.80}': expected '{{replicated}}' or '{{devices=[...]}}'")
    tiles, reshape, transpose, listed, rest = match.groups()
    counts = _numbers(tiles)
    order = _numbers(listed) if reshape is None else _transposed(_numbers(reshape), _numbers(transpose or ""), ranks)
    copies = 1 if rest.strip() == "last_tile_dim_replicate" else len(_last_tile_dims(rest))
    dims = counts[: len(counts) - copies]
    is_grid = min(counts) >= 1 and math.prod(counts) == ranks and sorted(order) == list(range(ranks))
    if not is_grid or len(dims) > min(rank, MOST_DIMS):
        raise UnsupportedOperation(f"has the sharding '{text:.80}' for {rank} dims, and the program {ranks} processes")
    return tile_layout(dims, order)


def _transposed(shape: list[int], axes: list[int], ranks: int) -> list[int]:
    """Return the ranks in the order of a transposed grid; empty if the grid is invalid."""
    axes = axes or list(range(len(shape)))
    if math.prod(shape) != ranks or len(shape) > MOST_DIMS or sorted(axes) != list(range(len(shape))):
        return []
    grid = np.arange(ranks).reshape(shape)
    return [int(each) for each in grid.transpose(axes).reshape(-1)]


def _last_tile_dims(text: str) -> list[str]:
    """Return the kinds of the extra tile dims, which are not dims of the tensor: `last_tile_dims={manual}`."""
    match = re.fullmatch(r"\s*last_tile_dims=\{([a-z, ]*)\}\s*", text)
    return [] if match is None else match.group(1).split(",")


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list; invalid ranks become 0."""
    return [int(each) if 0 < len(each) < 10 else 0 for each in text.split(",")] if text else []


def require_dims(layout: RankLayout, rank: int) -> None:
    """Require that a layout has no more dims than a tensor."""
    if len(layout.dims) > rank:
        raise UnsupportedOperation(f"has a sharding of {len(layout.dims)} dims, and a tensor of {rank}")


def text_of(attribute: ir.Attribute) -> str:
    """Return the text of an attribute."""
    return str(attribute.value) if isinstance(attribute, ir.StringAttr) else str(attribute)


def mesh_size(text: str) -> int:
    """Return the number of devices of a mesh."""
    return math.prod(int(size) for _, size in _MESH_AXIS.findall(text.partition("]")[0]))
