"""The code generator `collectives`: regions become lists of exchanges, executed by a loader over a transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.extend.codegen import (
    Artifact,
    CodeGenerator,
    ExternalFunction,
    ExternalModule,
    ExternalNode,
    Figures,
    PatternTuple,
    is_op,
)
from mirlo.extend.codegen import codegen_option as option
from mirlo.extend.passes import COLLECTIVES, RankGroups, read_groups
from mirlo_ranks.collectives.program import RankExchange, RankProgram


@dataclass(frozen=True)
class Collectives(CodeGenerator):
    """Exchanges between ranks over a transport, whose loader is an option."""

    name = "collectives"
    guarded = False
    figures = Figures(gflops=1.0, gbytes=2.0, call_us=60.0)
    """Figures of shared memory between two processes; each call goes through Python."""
    transport: str = option("shared-memory", "what moves the tensors: 'shared-memory', 'mpi', or another loader")

    @property
    def format(self) -> str:  # type: ignore[override]
        """Return the format of artifacts, which is the name of the transport."""
        return self.transport

    def patterns(self) -> Sequence[PatternTuple]:
        """Make each exchange a composite of its own."""
        return [(op.OPERATION_NAME.partition(".")[2], is_op(op.OPERATION_NAME)) for op in COLLECTIVES]

    def codegen(self, module: ExternalModule) -> Artifact:
        """Return the exchanges of each region as an artifact."""
        programs = {function.name: _program(function).to_json() for function in module.functions}
        return Artifact(self.transport, module.names, metadata={"programs": programs})

    def requirements(self) -> Sequence[str]:
        """Return the requirements on the ranks."""
        if self.transport == "shared-memory":
            return ["processes of one user on one machine, RANK and WORLD_SIZE in their environment"]
        return ["MPI and mpi4py"] if self.transport == "mpi" else [f"the loader '{self.transport}'"]


def _program(function: ExternalFunction) -> RankProgram:
    return RankProgram(
        tuple(value.name for value in function.inputs),
        tuple(value.name for value in function.outputs),
        tuple(map(_exchange, function.nodes)),
    )


def _exchange(node: ExternalNode) -> RankExchange:
    kind, ranks, attributes = node.op.partition(".")[2], node["ranks"], node.attributes
    if kind == "rank_id":
        return RankExchange(kind, "", node.output.name, ranks, (), node.output.dtype.name, ())
    x = node["x"]
    axes = [attributes[name] % len(x.shape) for name in ("axis", "split_axis", "concat_axis") if name in attributes]
    if kind == "collective_permute":
        pairs = node["pairs"]
        groups: RankGroups = tuple(zip(pairs[::2], pairs[1::2], strict=True))
    else:
        groups = read_groups(ranks, node["groups"], node["group_size"])
    reduction = attributes.get("reduction", "add")
    return RankExchange(kind, x.name, node.output.name, ranks, tuple(axes), x.dtype.name, groups, reduction)
