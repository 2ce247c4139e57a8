"""Faults planted in PTX of kernels with matrix units: what the exact comparison finds, and one of floats.

    cd test/passes/exact; python ptx_faults_suite.py [--count 20]

Floats are compared on normal numbers, with `rtol=1e-2` and `atol=1e-2` of the greatest result, as results have 16 bits.
What the emulator itself reports, such as races, counts for both. Harmless faults change no bit of results as floats.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
from ptx_faults import FAULTS, changed_line, planted
from test_emulated_kernels import BLACKWELL, HOPPER, MODELS, _kernels, _ptx, _status

from mirlo.passes.exact.verdict import DIFFERENT
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.testing.emulated_kernels import EmulatedKernel
from mirlo.testing.ptx.errors import KernelError, PtxError

COLUMNS = ("found by both", "by the exact comparison only", "by floats only", "by none", "harmless")
TOLERANCE = 1e-2


def results(kernel: EmulatedKernel, ptx: str) -> list[np.ndarray] | None:
    """Return the results for normal floats; None if the emulator reports an error."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(spec.shape).astype(numpy_dtype(spec.dtype)) for spec in kernel.artifact.inputs]
    try:
        return [np.asarray(each, np.float32) for each in kernel.results(arrays, None, True, lambda _: ptx)]
    except (KernelError, PtxError):
        return None


def column(kernel: EmulatedKernel, ptx: str, faulty: str) -> str:
    """Return which comparison finds a fault."""
    is_exact = _status(kernel, faulty) == DIFFERENT
    expected, found = results(kernel, ptx), results(kernel, faulty)
    assert expected is not None
    pairs = list(zip(expected, found or expected, strict=True))
    is_float = found is None or not all(
        np.allclose(x, y, TOLERANCE, TOLERANCE * float(np.abs(x).max())) for x, y in pairs
    )
    is_harmless = found is not None and all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)
    if not is_exact and is_harmless:
        return COLUMNS[4]
    return COLUMNS[{(True, True): 0, (True, False): 1, (False, True): 2, (False, False): 3}[is_exact, is_float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="faults of each kind for each kernel")
    parser.add_argument("--only", nargs="+", default=sorted(MODELS), help="names of models")
    options = parser.parse_args()
    count = options.count
    counts: Counter[tuple[str, str]] = Counter()
    for target in (HOPPER, BLACKWELL):
        for name in sorted({"odd sizes", "epilogue", "deep"} & set(options.only)):
            (kernel,) = _kernels(name, target)
            ptx = _ptx(kernel)
            for kind in FAULTS:
                for seed in range(count):
                    faulty = planted(ptx, kind, seed)
                    if faulty is None:
                        continue
                    where = column(kernel, ptx, faulty)
                    counts[kind, where] += 1
                    if where in COLUMNS[2:4]:
                        print(target, name, kind, seed, where, changed_line(ptx, faulty), flush=True)
    for kind in (*FAULTS, "all"):
        rows = [sum(n for (k, c), n in counts.items() if c == each and kind in (k, "all")) for each in COLUMNS]
        print(f"| {kind} | {' | '.join(map(str, rows))} |")


if __name__ == "__main__":
    main()
