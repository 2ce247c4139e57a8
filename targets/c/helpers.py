"""Short functions that the C files of whole models define, and the expressions that call them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.targets.c.halves import DEFINITIONS
from mirlo.targets.c.printer import bare
from mirlo.targets.c.scalars import EXPRESSIONS, Expression, ScalarOperation, c_scalar

_SIGNATURE = "static inline {type} {name}({type} a, {type} b) {{\n  {body}\n}}\n"
_LARGER = "return (a {sign} b) | (a != a) ? a : b; /* NaN if one of them is */"
"""Without branches, so that loops become vectors; of zeros of both signs it is either."""
_FLOORED = "const int64_t q = a / b;\n  return q {sign} (a % b != 0 && (a < 0) {equal} (b < 0));"
# name: type, body
_FUNCTIONS = {
    **{
        name: ("int64_t", f"return (int64_t)((uint64_t)a {sign} (uint64_t)b); /* it wraps around */")
        for name, sign in (("wrap_add", "+"), ("wrap_sub", "-"), ("wrap_mul", "*"))
    },
    "min_index": ("int64_t", "return a < b ? a : b;"),
    "max_index": ("int64_t", "return a > b ? a : b;"),
    "floor_div": ("int64_t", _FLOORED.format(sign="-", equal="!=")),
    "ceil_div": ("int64_t", _FLOORED.format(sign="+", equal="==")),
    **{
        f"{name}_{kind}": (kind, _LARGER.format(sign=sign))
        for kind in ("float", "double")
        for name, sign in (("max", ">"), ("min", "<"))
    },
}
_COUNTS = {
    "count_ones": "for (; x; x &= x - 1) ++n;",
    "count_leading_zeros": "while (n < bits && !(x >> (bits - 1 - n) & 1)) ++n;",
    "count_trailing_zeros": "while (n < bits && !(x >> n & 1)) ++n;",
}
_COUNT = "static inline int {name}(uint64_t x, int bits) {{\n  int n = 0;\n  (void)bits;\n  {body}\n  return n;\n}}\n"
HELPERS = {
    **{name: _SIGNATURE.format(type=kind, name=name, body=body) for name, (kind, body) in _FUNCTIONS.items()},
    **{name: _COUNT.format(name=name, body=body) for name, body in _COUNTS.items()},
}
"""The definitions, by name."""
_NAMES = re.compile(rf"\b({'|'.join((*DEFINITIONS, *HELPERS))})\b")


def helpers_of(text: str) -> str:
    """Return the definitions of the helpers that a text calls."""
    named = set(_NAMES.findall(text))
    named |= {name for known, text in DEFINITIONS.items() if known in named for name in _NAMES.findall(text)}
    return "\n".join(text for name, text in {**DEFINITIONS, **HELPERS}.items() if name in named)


def _index_call(function: str, otherwise: Expression) -> Expression:
    def text(op: ScalarOperation, at: list[str]) -> str:
        if isinstance(op.results[0].type, ir.IndexType):
            return f"{function}({bare(at[0])}, {bare(at[1])})"
        return otherwise(op, at)

    return text


def _count_call(function: str) -> Expression:
    def text(op: ScalarOperation, at: list[str]) -> str:
        kind = op.results[0].type
        return f"{function}((u{c_scalar(kind)}){at[0]}, {kind.width})"

    return text


def _float_call(function: str) -> Expression:
    return lambda op, at: f"{function}_{c_scalar(op.results[0].type)}({bare(at[0])}, {bare(at[1])})"


HELPED: Mapping[str, Expression] = {
    **EXPRESSIONS,
    **{
        op: _index_call(function, EXPRESSIONS[op])
        for op, function in (
            ("arith.floordivsi", "floor_div"), ("arith.ceildivsi", "ceil_div"), ("arith.minsi", "min_index"),
            ("arith.maxsi", "max_index"),
        )
    },
    "math.ctpop": _count_call("count_ones"),
    "math.ctlz": _count_call("count_leading_zeros"),
    "math.cttz": _count_call("count_trailing_zeros"),
    "arith.maximumf": _float_call("max"),
    "arith.minimumf": _float_call("min"),
}  # fmt: skip
"""The C expressions of scalar operations in files that have the helpers."""
HELPED_WRAPPING: Mapping[str, Expression] = {
    f"arith.{name}i": _index_call(f"wrap_{name}", EXPRESSIONS[f"arith.{name}i"]) for name in ("add", "sub", "mul")
}
"""The C expressions of sums and products of indices that may overflow."""
