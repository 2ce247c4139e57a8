"""Default rules of the intrinsics: elementary functions as arithmetic that every target has, and that vectorizes."""

INDEX = """
bessel: i0 i0e i1 i1e j0 j1
errorfunction: erf erfc
exponential: exp exp2 expm1 sigmoid
flatten: fmod remainder
gamma: digamma erfinv lgamma tgamma
hyperbolic: acosh asinh atanh cosh sinh tanh
integer: clz ctz fixed_mul popcount sat_adds sat_addu sat_subs sat_subu shl shrs shru
inverse: acos asin atan atan2
logarithm: log log10 log1p log2
power: cbrt hypot pow
remainders: fmod remainder
representation: abs copysign isfinite isinf isnan ldexp nextafter
rounding: ceil floor fma fmuladd round roundeven rsqrt sqrt trunc
trigonometric: cos sin tan
widen: acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor fma fmod
    fmuladd hypot i0 i0e i1 i1e isfinite isinf isnan j0 j1 ldexp lgamma log log10 log1p log2 pow remainder round
    roundeven rsqrt sigmoid sin sinh sqrt tan tanh tgamma trunc
"""
"""The modules by the intrinsics that the rules of each file are for."""
