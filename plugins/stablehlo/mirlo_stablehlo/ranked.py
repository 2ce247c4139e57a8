"""The processes of a program, and the device meshes that its shardings name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from mirlo.extend.frontend import Dim, RankLayout, UnsupportedOperation, ir
from mirlo_stablehlo.processes import PARTITIONS, ProcessGrid, process_grid
from mirlo_stablehlo.shardings import (
    SHARDY,
    XLA,
    Mesh,
    mesh_size,
    read_mesh,
    read_shardings,
    read_xla_sharding,
    require_dims,
    text_of,
)


class RankedProgram:
    """The information about processes that the import of operations needs."""

    def __init__(self, functions: Mapping[str, ir.Operation]) -> None:
        self._functions = functions
        self.manual_depth = 0
        """How many manual computations are being imported, each inside of the one before."""

    @cached_property
    def grid(self) -> ProcessGrid:
        """Return the process grid that the module declares or that its meshes or collectives imply."""
        module = self._module
        if PARTITIONS not in module.attributes and self._mesh_texts:
            return ProcessGrid(1, max(map(mesh_size, self._mesh_texts.values())))
        return process_grid(module)

    @cached_property
    def meshes(self) -> dict[str, Mesh]:
        """Return the meshes by name."""
        return {name: read_mesh(text, self.grid.ranks) for name, text in self._mesh_texts.items()}

    def interface_layout(self, attributes: Mapping[str, ir.Attribute], shape: Sequence[Dim]) -> RankLayout | None:
        """Return the layout of an input or a result among ranks; None if each rank has all of it."""
        if self.grid.ranks == 1:
            return None
        layout: RankLayout | None = None
        if SHARDY in attributes:
            text = str(attributes[SHARDY])
            shardings = read_shardings(text, self.meshes, self.grid.ranks)
            if len(shardings) != 1:
                raise UnsupportedOperation(f"has the sharding '{text:.80}': expected one, <@mesh, [...]>")
            layout = shardings[0].layout
        elif XLA in attributes:
            layout = read_xla_sharding(text_of(attributes[XLA]), len(shape), self.grid.ranks)
        if layout is None:
            return None
        require_dims(layout, len(shape))
        fitting = layout.with_dims(len(shape)).fitting(shape)
        return None if fitting.is_whole else fitting

    @cached_property
    def _module(self) -> ir.Operation:
        module = next(iter(self._functions.values())).parent
        assert module is not None
        return module.operation

    @cached_property
    def _mesh_texts(self) -> dict[str, str]:
        operations = [op.operation for op in self._module.regions[0].blocks[0].operations]
        meshes = [op for op in operations if op.name == "sdy.mesh"]
        return {str(op.attributes["sym_name"].value): str(op.attributes["mesh"]) for op in meshes}
