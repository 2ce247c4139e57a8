"""Default rules of the intrinsics: elementary functions as arithmetic that every target has, and that vectorizes."""

from mirlo.passes.lower.expansions import (  # noqa: F401  (importing registers the rules)
    bessel,
    errorfunction,
    exponential,
    flatten,
    gamma,
    hyperbolic,
    integer,
    inverse,
    logarithm,
    power,
    remainders,
    representation,
    rounding,
    trigonometric,
    widen,
)
