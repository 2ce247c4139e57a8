"""Dims that a model requires to be equal: found during import, checked at each call.

A model may name two dims differently that can only be equal, or leave a dim dynamic that can only be one number.
When an operator finds that, the equation is solved for one of the inputs' symbols, and the import restarts with the
solution. Inputs then have dims such as `past + 1`, which are checked against the arguments of a call. Data-dependent
sizes are solved for too, and checked when they are known: the import resumes before the node that made the symbol. If
no symbol can be solved for, the dims are assumed equal, with the same check.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.frontends.onnx.values import AnyValue
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import Kind

MAX_EQUATIONS = 64
"""Most times that the nodes of a model are imported again for equations."""


MULTIPLE = "_times"
"""The end of the name of a symbol that stands for a quotient."""


def divisor_of(dim: Dim) -> int | None:
    """Return the number of which a dim must be a multiple, if it is that number of times a quotient's symbol."""
    terms = D.terms_of(dim)
    if len(terms) != 1 or len(terms[0][0]) != 1 or not terms[0][0][0].endswith(f"_per_{terms[0][1]}{MULTIPLE}"):
        return None
    return terms[0][1]


class Solved(Exception):
    """Raised when a symbol of the inputs, or of a data-dependent size, must equal this dim."""

    def __init__(self, name: str, dim: Dim, of_data: bool = False) -> None:
        super().__init__(name)
        self.name = name
        self.dim = dim
        self.of_data = of_data


@dataclass
class Solutions:
    """What was found so far for symbols, by name."""

    dims: dict[str, Dim] = field(default_factory=dict)
    restarts: int = 0
    """Imports that began with the first node again."""
    _of_data: set[str] = field(default_factory=set)
    _repeated: int = 0
    """Nodes that were imported again from a checkpoint."""

    @property
    def is_open(self) -> bool:
        """Whether further equations may be solved."""
        return self.restarts < MAX_EQUATIONS

    def add(self, found: Solved) -> None:
        """Add what one symbol must be."""
        self._substitute({found.name: found.dim})
        if found.of_data:
            self._of_data.add(found.name)

    def restart(self, found: Solved) -> None:
        """Add what one symbol must be before the import begins with the first node again."""
        self.restarts += 1
        self.add(found)
        if not found.of_data:  # symbols of data-dependent sizes may be named differently now, and are solved again
            self.dims = {name: dim for name, dim in self.dims.items() if name not in self._of_data}
            self._of_data.clear()

    def restart_with(self, sizes: Mapping[str, Dim]) -> None:
        """Add data-dependent sizes before the import begins with the first node again."""
        self.restarts += 1
        self._substitute({name: D.substitute(dim, self.dims) for name, dim in sizes.items()})
        self._of_data.update(sizes)

    def add_repeated(self, nodes: int, imported: int) -> bool:
        """Count nodes that are imported again; return whether they are not too many for an import of this size."""
        self._repeated += nodes
        return self._repeated <= MAX_EQUATIONS * imported

    def _substitute(self, found: Mapping[str, Dim]) -> None:
        self.dims = {name: D.substitute(dim, found) for name, dim in self.dims.items()} | dict(found)


def solve(left: Dim, right: Dim, symbols: Collection[str], of_data: Mapping[str, int] | None = None) -> Solved | None:
    """Return what one of these symbols must be for two dims to be equal, if that follows.

    Of symbols for data-dependent sizes, solve for the one that was created last.
    """
    if left is D.UNKNOWN or right is D.UNKNOWN:
        return None
    difference = left - right
    if isinstance(difference, int):
        return None
    names = D.symbols_of(difference)
    positions = of_data or {}
    data_names = sorted((name for name in names if name in positions), key=positions.__getitem__)
    if any(name not in symbols and name not in data_names and not name.endswith(MULTIPLE) for name in names):
        return None
    candidates = data_names[-1:] or symbols
    solutions = []
    for atoms, factor in difference.terms:
        rest = difference - D.SymbolicDim(((atoms, factor),))
        if len(atoms) != 1 or atoms[0] not in candidates or atoms[0] in D.symbols_of(rest):
            continue
        dim = _quotient(rest * -1, factor)
        if dim is not None and not (isinstance(dim, int) and dim < 0):
            solutions.append(Solved(atoms[0], dim, bool(data_names)))
    return min(solutions, key=_preference) if solutions else None


def _preference(found: Solved) -> tuple[bool, bool, int]:
    """Rank solutions: a number says more than a symbol; a difference may be negative, which only the call can tell."""
    dim = found.dim
    return not isinstance(dim, int), not D.is_certain(lambda: dim >= 0), len(str(dim))


def _quotient(dim: Dim, factor: int) -> Dim | None:
    return dim // factor if dim % factor == 0 else None


def multiple_of(dim: Dim, number: int) -> Dim:
    """Return a dim that must be a multiple of a number in a form that shows it."""
    name = "".join(part if part.isalnum() or part in "._" else "_" for part in str(dim))
    return D.symbol(f"{'_' * name[0].isdigit()}{name}_per_{number}{MULTIPLE}") * number


def divisible(dim: Dim, number: int) -> tuple[Dim, Dim]:
    """Return two dims that are equal if this number divides the dim: `3*n` is a multiple of 6 if `n` is one of 2."""
    common = gcd(*(factor for _, factor in D.terms_of(dim)))
    part = dim // max(common, 1)
    return part, multiple_of(part, number // gcd(number, common))


def assume_equal(left: Dim, right: Dim, inputs: Sequence[AnyValue | None], what: str) -> list[AnyValue | None] | None:
    """Return the inputs of a node with one of two dims replaced by the other, each as a view.

    The call checks that the dims are equal: element counts are also equal where another dim is 0. An error contains
    `what`. Return None if no input has such a dim.
    """
    if left is D.UNKNOWN or right is D.UNKNOWN or isinstance(left - right, int):
        return None
    if any(name.endswith(MULTIPLE) for dim in (left, right) for name in D.symbols_of(dim)):
        return None
    for old, new in ((left, right), (right, left)):
        affected = [isinstance(value, Tensor) and value.known is None and old in value.type.shape for value in inputs]
        if not isinstance(old, int) and any(affected):
            RequireDims.build(dims=(old, new), bounds=(new, old), what=what, result_types=[])
            return [
                _with_dim(value, old, new) if f and isinstance(value, Tensor) else value
                for value, f in zip(inputs, affected, strict=True)
            ]
    return None


def _with_dim(value: Tensor, old: Dim, new: Dim) -> Tensor:
    shape = tuple(new if dim == old else dim for dim in value.shape)
    result = value.reshape(shape)
    result.name, result.region = value.name, value.region
    return result


def with_solutions(
    types: Mapping[str, TensorType | Kind], solutions: Mapping[str, Dim]
) -> dict[str, TensorType | Kind]:
    """Return the input types with solutions substituted for their symbols."""
    return {
        name: found.with_shape([D.substitute(dim, solutions) for dim in found.shape])
        if isinstance(found, TensorType)
        else found
        for name, found in types.items()
    }
