"""A table of ONNX's node tests on WebGPU: `python -m mirlo_webgpu.onnx_tests [--every N]`.

Each model is compiled for target `webgpu` and compared with the results that ONNX has for it.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper

import mirlo
from mirlo import MirloError

QUOTED = r"'[^']*'|\b[0-9]+\b"
"""Matches names and numbers, which are removed from reasons to count equal ones."""
TOLERANCE = 1e-3
"""Relative error of a correct float, unless the test allows a larger one."""


def main() -> None:
    """Print a table of counts by reason."""
    parser = argparse.ArgumentParser(prog="python -m mirlo_webgpu.onnx_tests", description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every n-th test only")
    parser.add_argument("--names", default="", metavar="REGEX", help="tests whose names match only")
    options = parser.parse_args()
    with warnings.catch_warnings():
        # ONNX divides by zero to know the results of its tests.
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    cases = [case for case in cases if re.search(options.names, case.name)][:: options.every]
    outcomes = {case.name: _outcome(case) for case in cases}
    print(f"| of {len(cases)} models | outcome |\n| ---: | --- |")
    for outcome, count in Counter(outcomes.values()).most_common():
        print(f"| {count} | {outcome} |")
    for name, outcome in outcomes.items():
        if outcome.startswith("wrong"):
            print(f"{name}: {outcome}")


def _outcome(case: onnx.backend.test.case.TestCase) -> str:
    """Return the outcome of a test, or the reason of a refusal."""
    try:
        compiled = mirlo.compile(case.model, target="webgpu", cache=False)
        for inputs, expected in case.data_sets:
            names = [value.name for value in case.model.graph.input]
            results = compiled.run(dict(zip(names, map(_array, inputs), strict=True)))
            for output, wanted in zip(case.model.graph.output, expected, strict=True):
                if not _agrees(results[output.name], wanted, max(case.rtol, TOLERANCE)):
                    return "wrong results"
    except MirloError as error:
        return f"refused: {re.sub(QUOTED, '...', str(error).splitlines()[0])[:120]}"
    return "right"


def _array(value: object) -> object:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _agrees(result: object, wanted: object, tolerance: float) -> bool:
    """Return whether a result equals the expected one; lists are sequences."""
    if isinstance(wanted, (list, tuple)):
        members = list(result) if isinstance(result, Iterable) else []
        return len(members) == len(wanted) and all(map(_agrees, members, wanted, [tolerance] * len(members)))
    if wanted is None or result is None:
        return wanted is result
    values, array = np.asarray(result), np.asarray(_array(wanted))
    if values.shape != array.shape:
        return False
    if array.dtype.kind not in "fV":
        return bool(np.array_equal(values, array))
    return bool(np.allclose(values.astype(np.float64), array.astype(np.float64), tolerance, 1e-5, equal_nan=True))


if __name__ == "__main__":
    main()
