"""Whether results are what they must be: each kind of check as a function to the error that it found.

`relative` is of the largest number that is expected or 1, `ulp` in units in the last place, `exact` counts elements.
What is too large to carry is computed again in numpy, some rows of it; of products a random sum along the rows as well,
which every element is part of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mirlo.tools.conformance.errors import relative_error, ulp_errors

Arrays = Sequence[np.ndarray]
ROWS = 24


def judge(kind: str, facts: Mapping[str, Any], inputs: Arrays, outputs: Arrays, stored: Arrays) -> float:
    """Return the error of some outputs; infinite where the shape is wrong, or NaN meets a number."""
    with np.errstate(all="ignore"):
        if kind == "stored":
            return max(_stored(facts["how"], facts, _some(f, facts), s) for f, s in zip(outputs, stored, strict=True))
        return MEANINGS[kind](facts, inputs, outputs)


def _some(output: np.ndarray, facts: Mapping[str, Any]) -> np.ndarray:
    """Return the stored part of a result: all of it, or every n-th element of a large one."""
    step = facts.get("step", 1)
    return output if step == 1 else output.reshape(-1)[::step]


def _stored(how: str, facts: Mapping[str, Any], output: np.ndarray, wanted: np.ndarray) -> float:
    if output.shape != wanted.shape:
        return float("inf")
    if how == "exact" or output.dtype.kind in "biu":
        return float((output.astype(np.int64) != wanted.astype(np.int64)).sum())
    if how == "ulp":
        errors = ulp_errors(output, wanted, facts["format"], facts.get("unit_from", 0.0))
        # Below `from`, what is stored has too few digits itself.
        return float(np.where(np.abs(wanted) < facts.get("from", 0.0), 0, errors).max(initial=0))
    return relative_error(output.astype(np.float64), wanted, facts.get("least", 1.0))


def _spread(count: int, wanted: int = ROWS) -> np.ndarray:
    """Return sample rows: the first, the last, and others between."""
    between = np.random.PCG64(count).random_raw(max(wanted - 2, 0)) % np.uint64(max(count, 1))
    return np.unique(np.append(between.astype(np.int64), [0, count - 1]))


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int64 if x.dtype.kind in "iu" else np.float64)


def _product(facts: Mapping[str, Any], inputs: Arrays, outputs: Arrays) -> float:
    """Return the error of a product; `transposed` names the transposed operands: "a", "b", "ab" or none."""
    a, b = inputs[0], inputs[1]
    a = a.T if "a" in facts["transposed"] else a
    b = b.T if "b" in facts["transposed"] else b
    (got,) = outputs
    if got.shape != (a.shape[0], b.shape[1]):
        return float("inf")
    rows = _spread(len(a))
    # Integers are exact in f64, and so are the factors; f32 is as good for narrow ones, in a tenth of the time.
    kind = np.float64 if a.dtype.itemsize > 2 or a.dtype.kind in "iu" else np.float32
    right = b.astype(kind)
    wanted = a[rows].astype(kind) @ right
    largest = max(float(np.abs(wanted).max()), 1e-30)
    worst = float(np.abs(got[rows].astype(np.float64) - wanted).max()) / largest
    if not np.isfinite(got.astype(np.float32)).all():
        return float("inf")
    # got · r = a · (b · r) for signs r: a wrong tile anywhere is seen. Rounded elements add up as a random walk.
    signs = np.where(np.random.PCG64(7).random_raw(b.shape[1]) & np.uint64(1), 1, -1).astype(kind)
    left, other = got.astype(kind) @ signs, a.astype(kind) @ (right @ signs)
    walk = float(np.abs(left - other).max()) / (largest * np.sqrt(b.shape[1]))
    return max(worst, walk)


def _attention(facts: Mapping[str, Any], inputs: Arrays, outputs: Arrays) -> float:
    q, k, v = inputs[:3]
    (got,) = outputs
    if got.shape != (*q.shape[:3], v.shape[3]):
        return float("inf")
    if not np.isfinite(got.astype(np.float32)).all():
        return float("inf")
    worst, share = 0.0, q.shape[1] // k.shape[1]
    for batch, head in {(0, 0), (q.shape[0] - 1, q.shape[1] - 1), (0, q.shape[1] // 2)}:
        rows = _spread(q.shape[2])
        keys, values = (_wide(x[batch, head // share]) for x in (k, v))
        scores = _wide(q[batch, head, rows]) @ keys.T * q.shape[3] ** -0.5
        if facts["causal"]:
            scores = np.where(np.arange(k.shape[2])[None] <= rows[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        wanted = weights @ values / weights.sum(1, keepdims=True)
        largest = max(float(np.abs(wanted).max()), 1e-30)
        worst = max(worst, float(np.abs(_wide(got[batch, head, rows]) - wanted).max()) / largest)
    return worst


def _rows(facts: Mapping[str, Any], inputs: Arrays, outputs: Arrays) -> float:
    """Return the error of functions of rows, for some of them; all results must be finite."""
    (got,) = outputs
    if not np.isfinite(got.astype(np.float32)).all():
        return float("inf")
    rows = _spread(len(got), 4 * ROWS)
    wanted = ROW_FUNCTIONS[facts["function"]](*(_wide(x[rows] if x.ndim > 1 else x) for x in inputs))
    if got.shape != (len(inputs[0]), *wanted.shape[1:]):
        return float("inf")
    return relative_error(_wide(got[rows]), wanted, 1e-30)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ROW_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda x, y: x + y,
    "copy": lambda x: x,
    "gelu": _gelu,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "sum": lambda x: x.sum(-1),
}


def _convolution(facts: Mapping[str, Any], inputs: Arrays, outputs: Arrays) -> float:
    """Return the error of a convolution by some of the lines; channels last, kernels [height, width, in, out]."""
    x, w = inputs
    (got,) = outputs
    strides, pad = facts["strides"], facts["padding"]
    size, worst = w.shape[0], 0.0
    padded = np.pad(x.astype(np.float32), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    for image in (0, len(x) - 1):
        for line in _spread(got.shape[1], 5):
            strip = padded[image, line * strides : line * strides + size]
            windows = np.lib.stride_tricks.sliding_window_view(strip, size, 1)[:, ::strides][:, : got.shape[2]]
            wanted = np.einsum("hoiw,hwic->oc", windows, w.astype(np.float32), optimize=True)
            largest = max(float(np.abs(wanted).max()), 1e-30)
            difference = np.abs(got[image, line].astype(np.float32) - wanted).max()
            worst = max(worst, float(difference) / largest)
    return worst if np.isfinite(got.astype(np.float32)).all() else float("inf")


MEANINGS: dict[str, Callable[[Mapping[str, Any], Arrays, Arrays], float]] = {
    "attention": _attention,
    "convolution": _convolution,
    "product": _product,
    "rows": _rows,
}
