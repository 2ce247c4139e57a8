"""Elementwise operators, one expression each; `function.py` joins chains of them into one loop."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.relax import OPS
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.byoc.view import ExternalNode, ExternalValue
from mirlo.targets.c.emit import EMITTERS
from mirlo.targets.c.emit.derived import derive, elementwise_operators
from mirlo.targets.c.intrinsics import FUNCTIONS
from mirlo.targets.c.loops import CLoopsError
from mirlo.targets.c.types import c_type, literal
from mirlo.targets.c.writer import Writer, count

Expression = Callable[[ExternalNode, list[str]], str]
"""The C expression of an element, given those of the operands: variables, so that they may occur several times."""
EXPRESSIONS: dict[str, Expression] = {}


def _suffix(dtype: DType) -> str:
    return "f" if dtype.name == "f32" else ""


def _kind(node: ExternalNode) -> DType:
    """Return the type in which an operator computes: that of its last operand, because a condition comes first."""
    return node.inputs[-1].type.dtype


def _template(real: str, integer: str | None = None, boolean: str | None = None) -> Expression:
    def expression(node: ExternalNode, operands: list[str]) -> str:
        kind = _kind(node)
        text = boolean if kind.is_bool and boolean else integer if not kind.is_float and integer else real
        names = dict(zip("abc", operands, strict=False))
        return text.format(**names, f=_suffix(kind), t=c_type(kind), s="u" if kind.is_unsigned else "s", bits=kind.bits)

    return expression


# operator: the expression for floats; for integers, where it differs; for bools
_TEMPLATES: dict[str, tuple[str, ...]] = {
    **{name: (f"{function}{{f}}({{a}})",) for name, function in FUNCTIONS.items() if INTRINSICS[name].arity == 1},
    "round": ("rint{f}({a})",),
    "abs": ("fabs{f}({a})", "{a} < 0 ? ({t})-{a} : {a}"),
    "negative": ("-{a}", "({t})-{a}"),
    "sign": ("{a} != {a} ? {a} : ({t})(({a} > 0) - ({a} < 0))", "({t})(({a} > 0) - ({a} < 0))"),
    "rsqrt": ("1 / sqrt{f}({a})",),
    "reciprocal": ("1 / {a}",),
    "square": ("{a} * {a}", "({t})({a} * {a})"),
    "logical_not": ("!{a}",),
    "bitwise_not": ("({t})~{a}", "({t})~{a}", "!{a}"),
    "isnan": ("isnan({a}) != 0",),
    "isinf": ("isinf({a}) != 0",),
    "isfinite": ("isfinite({a}) != 0",),
    "add": ("{a} + {b}", "({t})({a} + {b})"),
    "subtract": ("{a} - {b}", "({t})({a} - {b})"),
    "multiply": ("{a} * {b}", "({t})({a} * {b})"),
    # The smallest integer divided by -1 traps; return it unchanged.
    "divide": (
        "{a} / {b}",
        "{b} == 0 ? ({t})0 : ({t})-1 < 0 && {b} == ({t})-1 ? ({t})(0 - (uint64_t){a}) : ({t})({a} / {b})",
    ),
    "floor_divide": ("floor{f}({a} / {b})", "({t})mirlo_floordiv({a}, {b})"),
    "mod": ("mirlo_modulo{f}({a}, {b})", "({t})mirlo_mod({a}, {b})"),
    "fmod": ("fmod{f}({a}, {b})", "{b} == 0 || ({t})-1 < 0 && {b} == ({t})-1 ? ({t})0 : ({t})({a} % {b})"),
    "power": ("pow{f}({a}, {b})",),
    "maximum": ("{a} > {b} || {a} != {a} ? {a} : {b}",),
    "minimum": ("{a} < {b} || {a} != {a} ? {a} : {b}",),
    "atan2": ("atan2{f}({a}, {b})",),
    "logical_and": ("{a} && {b}",),
    "logical_or": ("{a} || {b}",),
    "logical_xor": ("{a} != {b}",),
    "bitwise_and": ("({t})({a} & {b})",),
    "bitwise_or": ("({t})({a} | {b})",),
    "bitwise_xor": ("({t})({a} ^ {b})",),
    "shift_left": ("{b} < {bits} ? ({t})({a} << {b}) : ({t})0",),
    "shift_right": ("({t})({a} >> ({b} < {bits} ? {b} : {bits} - 1)) * ({b} < {bits} || {a} < 0)",),
    "equal": ("{a} == {b}",),
    "not_equal": ("{a} != {b}",),
    "less": ("{a} < {b}",),
    "less_equal": ("{a} <= {b}",),
    "greater": ("{a} > {b}",),
    "greater_equal": ("{a} >= {b}",),
    "where": ("{a} ? {b} : {c}",),
    "relu": ("{a} < 0 ? 0 : {a}",),
    "prelu": ("{a} < 0 ? {a} * {b} : {a}", "{a} < 0 ? ({t})({a} * {b}) : {a}"),
    "sigmoid": ("mirlo_sigmoid{f}({a})",),
    "silu": ("{a} * mirlo_sigmoid{f}({a})",),
    "softplus": ("mirlo_softplus{f}({a})",),
    "mish": ("{a} * tanh{f}(mirlo_softplus{f}({a}))",),
    "softsign": ("{a} / (1 + fabs{f}({a}))",),
}
# operator: the expression of the operand and of its attributes, which are floats of the operand's type
_WITH_ATTRIBUTES = {
    "leaky_relu": "{a} >= 0 ? {a} : {a} * {alpha}",
    "elu": "{a} > 0 ? {a} : {alpha} * expm1{f}({a})",
    "selu": "{gamma} * ({a} > 0 ? {a} : {alpha} * expm1{f}({a}))",
    "celu": "{a} > 0 ? {a} : {alpha} * expm1{f}({a} / {alpha})",
    "hard_sigmoid": "mirlo_clamp{f}({alpha} * {a} + {beta}, 0, 1)",
    "thresholded_relu": "{a} > {alpha} ? {a} : 0",
    "shrink": "{a} < -({lambd}) ? {a} + {bias} : {a} > {lambd} ? {a} - {bias} : 0",
}


def _attributed(text: str) -> Expression:
    def expression(node: ExternalNode, operands: list[str]) -> str:
        kind = _kind(node)
        numbers = {name: literal(value, kind) for name, value in node.attributes.items()}
        return text.format(a=operands[0], f=_suffix(kind), **numbers)

    return expression


def _hard_swish(node: ExternalNode, operands: list[str]) -> str:
    kind, x = _kind(node), operands[0]
    return f"{x} * mirlo_clamp{_suffix(kind)}({x} * {literal(1 / 6, kind)} + {literal(0.5, kind)}, 0, 1)"


def _gelu(node: ExternalNode, operands: list[str]) -> str:
    f, x = _suffix(_kind(node)), operands[0]
    return f"mirlo_gelu{'_tanh' if node['approximate'] == 'tanh' else ''}{f}({x})"


def _clip(node: ExternalNode, operands: list[str]) -> str:
    kind, text = _kind(node), operands[0]
    if node["min"] is not None:
        low = literal(node["min"], kind)
        text = f"{text} < {low} ? {low} : {text}"
    if node["max"] is None:
        return text
    high = literal(node["max"], kind)
    # A minimum larger than the maximum yields the maximum.
    return f"{operands[0]} > {high} || ({text}) > {high} ? {high} : {text}"


def _cast(node: ExternalNode, operands: list[str]) -> str:
    return f"{operands[0]} != 0" if node["dtype"].is_bool else f"({c_type(node['dtype'])}){operands[0]}"


EXPRESSIONS.update({f"relax.{name}": _template(*texts) for name, texts in _TEMPLATES.items() if name in OPS})
EXPRESSIONS.update({f"relax.{name}": _attributed(text) for name, text in _WITH_ATTRIBUTES.items()})
EXPRESSIONS.update(
    {"relax.hard_swish": _hard_swish, "relax.gelu": _gelu, "relax.clip": _clip, "relax.cast": _cast}
)  # fmt: skip


def emit_chain(w: Writer, chain: list[ExternalNode]) -> None:
    """Emit one loop for a chain of operators and store the last one's result."""
    output = chain[-1].output
    inner = {node.output for node in chain[:-1]}
    read = [value for node in chain for value in node.inputs if value not in inner]
    if all(value.type.shape == output.type.shape or count(value) == "1" for value in read):
        with w.loop("i", count(output)) as at:
            _emit_elements(w, chain, lambda v: f"{w.names[v]}[{'0' if count(v) == '1' else at}]")
        return
    with w.each(output) as index:
        _emit_elements(w, chain, lambda v: w.broadcast(v, index))


def _emit_elements(w: Writer, chain: list[ExternalNode], element: Callable[[ExternalValue], str]) -> None:
    """Emit the loop body: each operator's result in a variable, the last one stored."""
    output = chain[-1].output
    made: dict[ExternalValue, str] = {}
    for position, node in enumerate(chain):
        operands = []
        for value in node.inputs:
            if value not in made:
                made[value] = f"e{len(made)}"
                w.line(f"const {c_type(value.type.dtype)} {made[value]} = {element(value)};")
            operands.append(made[value])
        if node.op not in EXPRESSIONS:
            made[node.output] = _emit_derived(w, node, operands, f"r{position}")
            if node is chain[-1]:
                w.line(f"{element(output)} = {made[node.output]};")
            continue
        text = EXPRESSIONS[node.op](node, operands)
        if node is chain[-1]:
            w.line(f"{element(output)} = {text};")
        else:
            made[node.output] = f"r{position}"
            w.line(f"const {c_type(node.output.type.dtype)} r{position} = {text};")


def _emit_derived(w: Writer, node: ExternalNode, operands: list[str], name: str) -> str:
    """Emit a call of the function that an operator's legalization became; return the variable of the result."""
    function = derive(node.operation)
    if isinstance(function, str):
        raise CLoopsError(f"{node.op} has no C code: {function}")
    w.functions[function.name] = f"static {function.text}"
    w.line(f"{c_type(node.output.type.dtype)} {name};")
    given = [
        f"({parameter.type})&{value}" for parameter, value in zip(function.parameters, (*operands, name), strict=True)
    ]
    w.line(f"{function.name}({', '.join(given)});")
    return name


def is_elementwise(operator: str) -> bool:
    """Return whether an operator is emitted in chains: by its expression, or by what its legalization became."""
    return operator in EXPRESSIONS or operator not in EMITTERS and operator in elementwise_operators()


def _emit_loop_nest(w: Writer, node: ExternalNode) -> None:
    emit_chain(w, [node])


EMITTERS.update(dict.fromkeys(EXPRESSIONS, _emit_loop_nest))
