"""Common patterns of code generators: contractions with epilogues, chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.attributes import REQUIRED
from mirlo.dialects.core.op import DialectOp, OpError
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.operators import is_const, is_op, maybe, wildcard
from mirlo.passes.byoc.pattern import Pattern, walk, wrapped_by
from mirlo.passes.byoc.search import PatternError


def activations() -> tuple[str, ...]:
    """Return all operators that declare `Trait.ACTIVATION`, of relax and of plug-ins."""
    return tuple(name for name, op in graph_operations().items() if Trait.ACTIVATION in op.TRAITS)


def functions_of_one_operand() -> tuple[str, ...]:
    """Return all operators, of relax and of plug-ins, that compute each element from one of their only operand, in f32.

    Of an operand with 8 bits such a function is a table of 256 entries, which `meaning` of its class computes.
    """
    x = TensorType.of((1,), "f32")
    return tuple(name for name, op in graph_operations().items() if _is_function_of(op, x))


def _is_function_of(op: type[DialectOp], x: TensorType) -> bool:
    if Trait.ELEMENTWISE not in op.TRAITS or op.meaning is None or len(op._operand_layout.fields) != 1:
        return False
    attributes = {name: declared.default for name, declared in op._attributes.items()}
    infer = getattr(op, "infer", None)
    if REQUIRED in attributes.values() or infer is None:
        return False
    try:
        return bool(infer(x, **attributes) == x)
    except OpError:
        return False


def conv_bias_activation(
    op: str = "relax.conv",
    bias: bool | None = None,
    activation: Sequence[str] | str | bool | None = None,
    weight: Pattern | None = None,
) -> Pattern:
    """Return a pattern of a convolution, its bias and an activation.

    `bias`: True for a required bias, False for none, None for either; it is the convolution's own operand or an
    added constant. `activation`: operators, one of which must follow; True for any operator with
    `Trait.ACTIVATION`, False for none, None for any or none. The parts are labelled 'conv', 'x', 'weight', 'bias',
    'activation'.
    """
    weight = (weight if weight is not None else is_const()).named("weight")
    data = wildcard().named("x")

    def conv(own_bias: Pattern | None) -> Pattern:
        operands = {} if own_bias is None else {"bias": own_bias}
        pattern = is_op(op)(x=data, weight=weight, **operands) if operands else is_op(op)(data, weight)
        return pattern.named("conv")

    added = is_op("relax.add")(conv(None), is_const().named("bias"))
    with_own = conv(is_const().named("bias"))
    if bias is False:
        return with_activation(conv(None), activation)
    if bias is True:
        return with_activation(added | with_own, activation)
    return with_activation(added | conv(maybe(is_const().named("bias"))), activation)


def matmul_bias_activation(
    bias: bool | None = None, activation: Sequence[str] | str | bool | None = None, weight: Pattern | None = None
) -> Pattern:
    """Return a pattern of a matrix product, an added bias and an activation; see `conv_bias_activation`.

    The parts are labelled 'matmul', 'x', 'weight', 'bias', 'activation'.
    """
    weight = (weight if weight is not None else is_const()).named("weight")
    matmul = is_op("relax.matmul")(wildcard().named("x"), weight).named("matmul")
    added = is_op("relax.add")(matmul, is_const().named("bias"))
    body = matmul if bias is False else added if bias else added | matmul
    return with_activation(body, activation)


def with_activation(body: Pattern, activation: Sequence[str] | str | bool | None) -> Pattern:
    """Return a pattern followed by an activation, labelled 'activation'; see `conv_bias_activation`."""
    if activation is False:
        return body
    is_limited = activation is not None and activation is not True
    names = [activation] if isinstance(activation, str) else list(activation) if is_limited else activations()  # type: ignore[arg-type]
    wrapped = is_op(*names)(body, ...).named("activation")
    return wrapped | body if activation is None else wrapped


def repeat(start: Pattern, step: Callable[[Pattern], Pattern], least: int = 0, most: int = 16) -> Pattern:
    """Return a chain: `start`, then a step `least` to `most` times, greedily.

    repeat(conv, lambda x: is_op("relax.relu", "relax.tanh")(x))

    Labels in the step are numbered from the end: 'x' is 'x[0]' in the last step, 'x[1]' in the one before.
    """
    if not 0 <= least <= most or most < 1:
        raise PatternError(f"a chain of {least} to {most} steps cannot be: expected 0 <= least <= most, most >= 1")
    result = start
    for left in reversed(range(most)):
        own = wrapped_by(step, result, "repeat")
        fresh = _labels(own) - _labels(result)
        numbered = _renamed(own, {label: f"{label}[{left}]" for label in fresh}, result)
        # The last `least` steps are required; before them the chain may start anywhere.
        result = numbered if left < least else numbered | start
    return result


def _labels(pattern: Pattern) -> set[str]:
    return {part.label for part in walk(pattern) if part.label is not None}


def _renamed(pattern: Pattern, names: Mapping[str, str], stop: Pattern) -> Pattern:
    if pattern is stop or not names:
        return pattern
    renamed = pattern.with_parts([_renamed(part, names, stop) for part in pattern.parts()])
    return renamed.named(names[str(pattern.label)]) if pattern.label in names else renamed
