"""What the inference functions of many operators share: broadcasting, axes, agreement of types."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType


def broadcast_dims(left: Dim, right: Dim) -> Dim:
    """numpy's rule for one dim; None of both known to be 1 and not provably equal is refused."""
    if left == 1:
        return right
    if right == 1 or left == right:
        return left
    if left is D.UNKNOWN or right is D.UNKNOWN:
        known = right if left is D.UNKNOWN else left
        return known if isinstance(known, int) and known != 1 else D.UNKNOWN
    raise OpError(f"dims {left} and {right} do not broadcast: they are neither equal nor 1")


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that numpy's rules give to an elementwise operation on these shapes."""
    rank = max(len(shape) for shape in shapes)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape):
            at = rank - len(shape) + i
            try:
                result[at] = broadcast_dims(result[at], dim)
            except OpError as error:
                listed = " and ".join("[" + ", ".join(map(str, s)) + "]" for s in shapes)
                raise OpError(f"shapes {listed} do not broadcast: {error}") from None
    return tuple(result)


def same_dtype(op_names: str, *types: TensorType | None) -> None:
    """All present operands must have one element type."""
    present = [t for t in types if t is not None]
    if any(t.dtype is not present[0].dtype for t in present):
        raise OpError(f"{op_names} must have one element type, got {', '.join(str(t.dtype) for t in present)}")


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """A non-negative axis; one outside the rank is refused."""
    if not -rank <= axis < rank:
        raise OpError(f"{what} {axis} is outside a tensor of rank {rank}: expected {-rank} to {rank - 1}")
    return axis % rank if rank else 0


def normalize_axes(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted non-negative axes; None means all."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(normalize_axis(axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise OpError(f"axes {list(axes)} name one axis twice")
    return tuple(found)


def require_rank(t: TensorType, rank: int, what: str) -> None:
    if t.rank != rank:
        raise OpError(f"{what} must have rank {rank}, got {t}")


def require_kind(t: TensorType, kinds: Sequence[str], what: str) -> None:
    """The element type must be of one of these kinds ('float', 'int', 'uint', 'bool')."""
    if t.dtype.kind not in kinds:
        words = {"float": "floating point", "int": "integer", "uint": "unsigned integer", "bool": "bool"}
        raise OpError(f"{what} must be {' or '.join(words[k] for k in kinds)}, got {t.dtype}")


def require_equal_dims(left: Dim, right: Dim, what: str) -> None:
    """Two dims must not be known to differ."""
    if left is D.UNKNOWN or right is D.UNKNOWN or left == right:
        return
    raise OpError(f"{what} must agree, got {left} and {right}")
