"""Rules of the llvm target for the tir intrinsics: elementary functions as arithmetic that vectorizes."""

from mirlo.targets.llvm.intrinsics import (  # noqa: F401  (importing registers the rules)
    errorfunction,
    exponential,
    flatten,
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
