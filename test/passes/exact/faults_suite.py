"""Random faults in kernels: how many the exact comparison finds, and how many a comparison of floats.

    cd test/passes/exact; PYTHONPATH=../../support python faults_suite.py --models 150 [--seed 0] [--faults 3]

Kernels are those of generated operators and attentions. Faults after which results are the same in 64-bit floats change
nothing. The comparison of floats runs both forms on normal numbers, in 64-bit floats, so that no rounding hides a
fault, and permits what is usual for f32: `rtol=1e-3, atol=1e-4`. It does not see what is beside buffers.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

import numpy as np
from generated_kernels import GENERATORS, attention
from planted_faults import plant_fault
from scheduled_pairs import kernel_pairs
from test_planted_faults import is_harmless

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.kernel_definition import RoundSettings, run_function
from mirlo.passes.exact.memory import RandomMemory
from mirlo.passes.exact.verdict import EQUAL

PROCESSOR = "x86-64-v4"
RTOL, ATOL = 1e-3, 1e-4
BY_BOTH, BY_EXACT, BY_FLOATS, BY_NONE, HARMLESS = "both", "exact only", "floats only", "none", "harmless"


def found_by_floats(pair: KernelPair, function: ir.Operation) -> bool:
    """Return whether results differ by more than the tolerance for f32."""
    arithmetic = DoubleArithmetic()
    expected = pair.definition.results(arithmetic, RoundSettings(0))
    scheduled = KernelPair(pair.definition, function).compile_scheduled(arithmetic)
    actual, _ = run_function(scheduled, RandomMemory(arithmetic, 100), expected.inputs, {}, expected.table)
    pairs = [(left.planes[0], right.planes[0]) for left, right in zip(expected.outputs, actual, strict=True)]
    return not all(np.allclose(right, left, RTOL, ATOL, equal_nan=True) for left, right in pairs)


def faults_of(seed: int, count: int) -> list[tuple[str, str]]:
    """Return the kinds of faults in the kernels of a generated model, and what finds each."""
    rng = random.Random(seed)
    text = attention(rng).text() if seed % 5 == 0 else rng.choice(GENERATORS)(rng).text(rng.random() < 0.8)
    results = []
    with make_context(), ir.Location.unknown():
        for _, pair in kernel_pairs(text, options=f"cpu={PROCESSOR}"):
            for function, kind in filter(None, (plant_fault(pair.scheduled, rng) for _ in range(count))):
                by_exact = KernelPair(pair.definition, function).verify().status != EQUAL
                by_floats = found_by_floats(pair, function)
                if not by_exact and not by_floats and is_harmless(pair.definition, function):
                    results.append((kind, HARMLESS))
                else:
                    names = {(True, True): BY_BOTH, (True, False): BY_EXACT, (False, True): BY_FLOATS}
                    results.append((kind, names.get((by_exact, by_floats), BY_NONE)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=150, help="how many models are generated")
    parser.add_argument("--faults", type=int, default=3, help="faults in each kernel")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start, counts, kinds = time.process_time(), Counter[str](), dict[str, Counter[str]]()
    for seed in range(options.seed, options.seed + options.models):
        for kind, by in faults_of(seed, options.faults):
            counts[by] += 1
            kinds.setdefault(kind, Counter())[by] += 1
    columns = (BY_BOTH, BY_EXACT, BY_FLOATS, BY_NONE, HARMLESS)
    print(f"| fault | {' | '.join(columns)} |")
    print(f"| --- | {' | '.join('---:' for _ in columns)} |")
    for kind, own in sorted(kinds.items()):
        print(f"| {kind} | {' | '.join(str(own[column]) for column in columns)} |")
    print(f"| all | {' | '.join(str(counts[column]) for column in columns)} |")
    print(f"{sum(counts.values())} faults, {time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
