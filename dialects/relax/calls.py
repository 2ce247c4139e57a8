"""Calls from the graph to prim functions and to external code."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Dims, Str, Strs, Symbol
from mirlo.dialects.core.dims import Dim, is_nonnegative, product, substitute
from mirlo.dialects.core.op import OpError, operand, operands, results
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import INTEGER, require_kind


class CallTir(RelaxOp, name="call_tir"):
    """Call a prim function. Pure; the results are written to destinations that the memory plan provides.

    Symbols of the function have the values of the caller's dims `sizes`; those that are not among `symbols` have the
    same name in both.
    """

    TRAITS = (Trait.INTERFACE,)
    args = operands()
    outputs = results()
    callee = Symbol()
    symbols = Strs(())
    sizes = Dims(())

    def check(self) -> None:
        if len(self.symbols) != len(self.sizes):
            raise OpError(f"sizes must have a dim for each of {len(self.symbols)} symbols, got {len(self.sizes)}")

    def in_caller(self, dim: Dim) -> Dim:
        """Return a dim of the function as a dim of the caller."""
        if not self.symbols:
            return dim
        return substitute(dim, dict(zip(self.symbols, self.sizes, strict=True)))


class CallDpsPacked(RelaxOp, name="call_dps_packed"):
    """Call a run-time function by name with DLPack tensors: inputs, then outputs that the caller allocates."""

    TRAITS = (Trait.INTERFACE,)
    args = operands()
    outputs = results()
    function = Str()


class CallPacked(RelaxOp, name="call_packed"):
    """Call a run-time function by name that allocates its results, in Python, from tensors and objects. Not pure.

    Values of type `!relax.object` are tensors of strings, sequences, or optional values. `options` is a JSON object
    of keyword arguments. Computations on tensors before and after the call are compiled.
    """

    TRAITS = (Trait.INTERFACE,)
    PURE = False
    args = operands()
    outputs = results()
    function = Str()
    options = Str("{}")


class CallExternal(RelaxOp, name="call_external"):
    """Call a function in an external module, `@module::@function`; its code generator replaces the call."""

    TRAITS = (Trait.INTERFACE,)
    args = operands()
    outputs = results()
    callee = Symbol()


class ViewPart(RelaxOp, name="view_part"):
    """The elements of x from position `offset[0]` on, in row-major order, in another shape: a part of its memory.

    x must be the result of a call, whose memory the plan chooses.
    """

    TRAITS = (Trait.INTERFACE,)
    x = operand()
    offset = Dims()
    shape = Dims()

    @staticmethod
    def infer(x: TensorType, *, offset: tuple[Dim, ...], shape: tuple[Dim, ...]) -> TensorType:
        if len(offset) != 1:
            raise OpError(f"offset must be one position, got {len(offset)}")
        end = offset[0] + product(shape)
        if not is_nonnegative(product(x.shape) - end):
            raise OpError(f"the part ends at element {end}, which may lie behind the last one of {x}")
        return x.with_shape(shape)


class ViewRow(RelaxOp, name="view_row"):
    """The slice of x at a position along its first dim, in place: what `gather` copies.

    x must be a constant in the parameter store. A negative position counts from the end; one that is still outside is
    that of the nearest slice.
    """

    TRAITS = (Trait.INTERFACE,)
    x = operand()
    position = operand()

    @staticmethod
    def infer(x: TensorType, position: TensorType) -> TensorType:
        require_kind(position, INTEGER, "position")
        if position.rank or not x.rank:
            raise OpError(f"expected a tensor with dims and a position without, got {x} and {position}")
        if not x.is_static or x.shape[0] == 0:
            raise OpError(f"x must have numbers for dims, the first one above 0, got {x}")
        return x.with_shape(x.shape[1:])
