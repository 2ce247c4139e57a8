"""The head of every C file: DLPack's tensor type and the functions that expressions use."""

from __future__ import annotations

INCLUDES = ("math.h", "stdbool.h", "stdint.h", "stdlib.h", "string.h")

DLPACK = """\
/* DLPack's tensor. Tensors are contiguous and row-major; their strides are not read. */
#ifndef DLPACK_DLPACK_H_
typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;
#endif
#define MIRLO_DATA(tensor) ((char *)(tensor)->data + (tensor)->byte_offset)
"""

_FUNCTION = "static inline {type} {name}{f}({arguments}) {{ {body} }}"
_INTEGERS = """\
static inline int64_t mirlo_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t mirlo_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t mirlo_floordiv(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t mirlo_mod(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a - mirlo_floordiv(a, b) * b;
}
static inline int64_t mirlo_edge(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
static inline int64_t mirlo_wrap(int64_t i, int64_t n) { return mirlo_mod(i, n); }
static inline int64_t mirlo_reflect(int64_t i, int64_t n) { return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i; }
"""
# name: arguments, body; {t} is float or double, {f} the suffix of its functions
_FLOATS = {
    "mirlo_sigmoid": ("{t} x", "return 1 / (1 + exp{f}(-x));"),
    "mirlo_softplus": ("{t} x", "return (x > 0 ? x : 0) + log1p{f}(exp{f}(-fabs{f}(x)));"),
    "mirlo_clamp": ("{t} x, {t} low, {t} high", "return x < low ? low : x > high ? high : x;"),
    "mirlo_gelu": ("{t} x", "return x * ({t})0.5 * (1 + erf{f}(x * ({t})0.70710678118654752));"),
    "mirlo_gelu_tanh": (
        "{t} x",
        "return x * ({t})0.5 * (1 + tanh{f}(({t})0.79788456080286536 * (x + ({t})0.044715 * x * x * x)));",
    ),
    "mirlo_modulo": ("{t} x, {t} y", "const {t} r = fmod{f}(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r;"),
}


def prelude(title: str) -> str:
    """Return the head of a file, with a title."""
    includes = "\n".join(f"#include <{name}>" for name in INCLUDES)
    functions = [
        _FUNCTION.format(type=t, name=name, f=f, arguments=arguments.format(t=t), body=body.format(t=t, f=f))
        for name, (arguments, body) in _FLOATS.items()
        for t, f in (("float", "f"), ("double", ""))
    ]
    return "\n".join([f"/* {title} */", includes, "", DLPACK, _INTEGERS + "\n".join(functions), ""])
