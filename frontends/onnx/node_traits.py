"""What a converter declares of its operator, beside how to convert it."""

from __future__ import annotations

from enum import Enum


class NodeTrait(Enum):
    """A property of an operator of ONNX that holds in all of its versions."""

    SAME_SHAPE = "same-shape"
    """The first output has the shape of the first input. Derived for elementwise operators of one operand whose class
    says what ONNX calls them."""
    SAME_VALUES = "same-values"
    """The first output has the numbers of the first input, as far as its element type holds them."""
    MOVES = "moves"
    """The outputs consist of elements of the inputs, whatever these are: strings are moved as indices."""
    MEASURES = "measures"
    """The types of the inputs determine the outputs; elements are not read."""
