"""The operations of StableHLO that are equivalent to an operator of relax."""

_EQUAL = "abs add atan2 cbrt ceil divide floor log maximum minimum multiply power rsqrt sqrt subtract tan tanh"
_CHLO = "acos acosh asin asinh atan atanh bessel_i1e cosh erf erfc sinh square tan"
_OTHER = {
    "bitwise_and": "and",
    "bitwise_not": "not",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "cos": "cosine",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "fmod": "remainder",
    "isfinite": "is_finite",
    "isinf": "chlo.is_inf",
    "log1p": "log_plus_one",
    "negative": "negate",
    "round": "round_nearest_even",
    "sigmoid": "logistic",
    "sin": "sine",
    "where": "select",
}
NAMES: dict[str, tuple[str, ...]] = {name: (name,) for name in _EQUAL.split()}
"""The names in StableHLO, and in its library CHLO, of operators of relax."""
for _name in _CHLO.split():
    NAMES[_name] = (*NAMES.get(_name, ()), f"chlo.{_name}")
NAMES.update((relax, (name,)) for relax, name in _OTHER.items())
