"""Operations of TOSA that are equivalent to an operator of relax."""

_EQUAL = (
    "abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos equal erf exp floor greater greater_equal log "
    "logical_and logical_not logical_or logical_xor reciprocal rsqrt sigmoid sin tanh"
)
NAMES = {
    **{name: (name,) for name in _EQUAL.split()},
    "power": ("pow",),
    "subtract": ("sub",),
    "where": ("select",),
}
"""The names in TOSA of operators of relax."""
