"""Target `collectives`: the operators that exchange tensors between the ranks of a model."""

from __future__ import annotations

from mirlo.extend.target import Target

TARGET = Target(
    name="collectives",
    help="communication between the ranks of a model, in shared memory or by MPI: collectives,llvm",
    codegen="mirlo_ranks.collectives.generator:Collectives",
    aliases=("ranks", "mpi", "distributed"),
)
