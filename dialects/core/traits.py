"""What an operator declares about itself on its class, from which every pass derives what it does with it.

    class Swish(DialectOp, name="swish", dialect=DIALECT):
        TRAITS = (Trait.ELEMENTWISE, Trait.ACTIVATION)
        PRECISION = Precision.REGISTERS
        FLOPS_PER_ELEMENT = 5

Passes hold no lists of operators: they ask for a trait, so an operator of a plug-in takes part.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir


class Trait(str, Enum):
    """A property of an operator. Rules may be registered for a trait as for an operator."""

    ELEMENTWISE = "elementwise"
    """Each element of the result depends on the broadcast elements of the operands at its position only."""
    ACTIVATION = "activation"
    """An elementwise function of one operand that usually follows a contraction."""
    COMMUTATIVE = "commutative"
    """Its two operands may be exchanged."""
    CONTRACTION = "contraction"
    """Sums of products over one or more dims."""
    VIEW = "view"
    """The elements of its operand in their order, in another shape."""
    SUBSET = "subset"
    """It reads of its first operand as many elements as it returns, however large the operand is."""
    LAST_AXIS = "last-axis"
    """Computes along the attribute `axis`, whose usual value is the last one; all other dims are independent."""
    INTERFACE = "interface"
    """A constant, a call or a binding of dims: part of the level below, computes nothing itself."""
    CHECKS_DIMS = "checks-dims"
    """It ends the call if one of its `checked_dims` is negative."""
    COLLECTIVE = "collective"
    """All ranks of a model call it at once; what it computes takes the operands of all of them."""
    REDUCTION = "reduction"
    """Combines the elements along the attribute `axes`, as its `COMBINE` says; with the attribute `keepdims`."""
    NEUTRAL = "neutral"
    """Derived: the class declares `NEUTRAL`, a right operand that changes nothing."""
    AXES = "axes"
    """Derived: the class declares `AXES`, so a permutation moves through it."""
    DATA_LAYOUT = "data-layout"
    """Derived: the class has an attribute `data_layout`."""
    SCALAR = "scalar"
    """Derived: an elementwise operator that declares `scalar` or `meaning`."""


class Precision(Enum):
    """How an operator on f32 takes part in a model whose products are computed in bf16 or f16."""

    F32 = "f32"
    """Stays in f32: it sums many elements, magnifies errors, compares, or is not known to be safe."""
    WIDE_RESULT = "wide-result"
    """Reads low-precision operands and returns f32 sums; has the attribute `out_dtype`."""
    NARROW = "narrow"
    """Reads and returns low precision; its kernels accumulate in f32."""
    STORED = "stored"
    """A constant first operand is stored in low precision: only some of its elements are read."""
    MOVES = "moves"
    """Moves elements: low precision if all of its operands are."""
    REGISTERS = "registers"
    """Computed in f32 in registers; operands and results in memory are low precision if an operand is."""


@dataclass(frozen=True)
class AxisAttributes:
    """The attributes of an operator that name axes of its operands, and so change where these are permuted."""

    axis: str = ""
    """An attribute with one axis."""
    axes: str = ""
    """An attribute with several axes; None stands for all."""
    per_axis: tuple[str, ...] = ()
    """Attributes with one value for each axis."""
    per_side: tuple[str, ...] = ()
    """Attributes with the values before all axes, then those after."""
    reduces: bool = False
    """Whether the axes named are removed from the result, or kept as 1 with the attribute `keepdims`."""


@dataclass(frozen=True)
class OnnxName:
    """The ONNX operator with the same meaning: operands in the same order, attributes of the same names."""

    operator: str
    domain: str = ""
    since: int = 1
    """The first opset version of the domain with this form."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Attributes that ONNX calls otherwise: own name, ONNX's name."""
    imported: bool = True
    """Whether the import converts it without a converter of its own."""
    exported: bool = True
    """Whether the export writes it without an exporter of its own."""


def traits_of(op: ir.Operation | ir.OpView | type[ir.OpView]) -> frozenset[Trait]:
    """Return the traits of an operation, or of a class of operations; none for one of upstream's."""
    cls = op if isinstance(op, type) else type(op.operation.opview)
    return getattr(cls, "TRAITS", frozenset())
