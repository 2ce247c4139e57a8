"""Operators of PyTorch: what is compiled of the samples of its operator database, and whether it is right.

python -m benchmarks.aten [--types f32,f16,bf16,i64] [--most SAMPLES] [OPERATOR ...] > LOG   # needs torch, expecttest
python -m benchmarks.aten --page LOG ... > docs/aten.md
python -m benchmarks.aten --gradients --types f32 ... > LOG; python -m benchmarks.aten --sum LOG ...

Each sample is exported, imported, compiled and compared with PyTorch. The samples of an operator and an
element type are compiled in one program. An operator runs in a process of its own. With `--gradients`, each sample is a
graph of `torch.compile`, and its results and gradients are compared with those of PyTorch's backend `aot_eager`, or, if
they differ, the errors of both, by gradients in f64; a sample is refused if an operator of its graphs runs eagerly.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mirlo.benchmarks.aten_samples import Sample, described, entries, name_of, program_of, samples_of

TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "bool": "bool", "u8": "uint8",
         "c64": "complex64"}  # fmt: skip
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-4, "float64": 1e-6}
"""Differences allowed, relative to the largest element of a result."""
OF_TIES = ("topk", "kthvalue", "median", "nanmedian", "mode", "sort", "argsort")
"""Operators that give positions of elements, of any of several equal ones."""
SECONDS = 300
"""Time of an operator, after which its process is ended."""


@dataclass
class Outcome:
    """What became of the samples of an operator with one element type."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """Samples that are not refused by name, and not computed."""

    @property
    def total(self) -> int:
        """Return the number of samples."""
        return self.right + len(self.wrong) + sum(self.refused.values()) + sum(self.failed.values())


def check(entry: Any, dtype: Any, most: int) -> Outcome:
    """Compile samples of an operator and compare them."""
    outcome = Outcome()
    samples = list(samples_of(entry, dtype, most))
    if not samples:
        return outcome
    program = None
    try:
        program = _import(program_of([sample for sample, _ in samples]))
    except Exception:
        samples = [pair for pair in samples if _is_imported(pair[0], outcome)]
    if not samples:
        return outcome
    try:
        _compare(samples, outcome, program)
    except Exception:
        for pair in samples:
            try:
                _compare([pair], outcome)
            except Exception as error:
                if _runs_exported(pair[0]):
                    outcome.failed[f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"] += 1
    return outcome


def _runs_exported(sample: Sample) -> bool:
    """Return whether PyTorch runs the exported program of a sample: some have conditions that do not hold."""
    try:
        program_of([sample]).module()(*[tensor.clone() for tensor in sample.tensors])
    except Exception:
        return False
    return True


def _import(program: Any) -> Any:
    from mirlo_torch.decompose import decomposed
    from mirlo_torch.importer import import_exported

    from mirlo.frontends.foreign import ImportedModule

    return ImportedModule(*import_exported(decomposed(program)))


def _is_imported(sample: Sample, outcome: Outcome) -> bool:
    """Return whether a sample is imported; count it with its reason if not."""
    from mirlo.frontends.foreign import FrontendError

    try:
        program = program_of([sample])
    except Exception:
        return False  # torch.export does not trace it
    try:
        _import(program)
    except FrontendError as problem:
        reason = str(problem).partition("): ")[2].partition(" [operands")[0] or str(problem)
        outcome.refused[f"{getattr(problem, 'operator', '')}: {reason}"] += 1
        return False
    except Exception as error:
        outcome.failed[f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"] += 1
        return False
    return True


def _compare(samples: Sequence[tuple[Sample, list[Any]]], outcome: Outcome, program: Any = None) -> None:
    import torch
    from mirlo_torch.tensors import to_complex, to_input, to_tensor

    import mirlo

    executable = mirlo.compile(program or _import(program_of([sample for sample, _ in samples])), cache=False, jobs=1)
    outputs = executable(*[to_input(tensor.contiguous()) for sample, _ in samples for tensor in sample.tensors])
    results = iter(outputs if isinstance(outputs, tuple) else (outputs,))
    for sample, expected in samples:
        tensors = [to_tensor(next(results)) for _ in expected]
        tensors = [
            to_complex(one) if each.dtype.is_complex else one for one, each in zip(tensors, expected, strict=True)
        ]
        has_positions = expected[-1].dtype == torch.int64 and (len(expected) == 2 or sample.name == "argsort")
        if sample.name in OF_TIES and has_positions and not sample.is_stable:
            tensors[-1] = _settled(sample, tensors[-1], expected[-1])
        difference = [_difference(one, each) for one, each in zip(tensors, expected, strict=True)]
        if any(difference):
            difference = _differences_in_f32(sample, tensors) or difference
        problem = next((each for each in difference if each), None)
        if problem is None:
            outcome.right += 1
        else:
            outcome.wrong.append(f"{problem}; arguments {described(sample)}")


def _settled(sample: Sample, actual: Any, expected: Any) -> Any:
    """Return the expected positions if the found ones are those of elements with the same values."""
    import torch

    operand, axes = sample.tensors[0], [leaf for leaf in sample.leaves[1:] if type(leaf) is int]
    if actual.shape != expected.shape or not operand.dim() or len(sample.tensors) > 1:
        return actual
    axis = next(iter(axes[1 if sample.name in ("topk", "kthvalue") else 0 :]), -1)
    wide = [each if each.dim() == operand.dim() else each.unsqueeze(axis) for each in (actual, expected)]
    one, other = (operand.gather(axis, each).nan_to_num(7e3) for each in wide)
    return expected if torch.equal(one, other) else actual


def _differences_in_f32(sample: Sample, actual: Sequence[Any]) -> list[str | None]:
    """Return how results of 16 bits differ from those computed in f32: PyTorch's own steps may overflow."""
    import torch

    low = (torch.float16, torch.bfloat16)
    if not any(each.dtype in low for each in actual):
        return []
    try:
        wide = sample.call([tensor.float() if tensor.dtype in low else tensor for tensor in sample.tensors])
        return [
            _difference(one, each.to(one.dtype)) if each.is_floating_point() else _difference(one, each)
            for one, each in zip(actual, wide, strict=True)
        ]
    except Exception:
        return []


def _difference(actual: Any, expected: Any) -> str | None:
    """Return how a result differs, or None."""
    import torch

    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)} for {expected.dtype}{list(expected.shape)}"
    if expected.dtype.is_complex:
        return _difference(torch.view_as_real(actual.resolve_conj()), torch.view_as_real(expected.resolve_conj()))
    if not expected.dtype.is_floating_point:
        count = int((actual != expected).sum())
        return f"{count} of {expected.numel()} elements differ" if count else None
    one, other = actual.double(), expected.double()
    tolerance = TOLERANCES[str(expected.dtype).removeprefix("torch.")]
    finite = other[torch.isfinite(other)]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    if torch.allclose(one, other, rtol=tolerance, atol=tolerance * min(max(size, 1e-3), 1.0), equal_nan=True):
        return None
    return f"differs by {float((one - other).abs().nan_to_num(nan=1e300).max()):.3g} of {size:.3g}"


def check_gradients(entry: Any, dtype: Any, most: int) -> Outcome:
    """Compile forward and backward graphs of samples and compare them."""
    from mirlo_torch.backend import stages

    outcome = Outcome()
    if not entry.supports_autograd:
        return outcome
    compiled: list[object] = []
    compile_graph = stages.compile_graph
    stages.compile_graph = lambda *arguments: compiled.append(None) or compile_graph(*arguments)  # type: ignore[func-returns-value, assignment]
    for sample, _ in samples_of(entry, dtype, most):
        try:
            expected = _gradients(sample, "aot_eager", None)
        except Exception:
            continue
        if expected is None:
            continue
        compiled.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                actual = _gradients(sample, "mirlo", {"cache": False, "threads": 1})
            except Exception as error:
                outcome.failed[f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"] += 1
                continue
        assert actual is not None
        differences = [
            _difference(one, each) if one is not None and each is not None else str(one is not each)
            for one, each in zip(actual, expected, strict=True)
            if one is not None or each is not None
        ]
        problem = next((each for each in differences if each), None)
        if problem is not None and _is_as_exact(sample, actual, expected):
            problem = None
        reasons = [str(warning.message) for warning in caught if str(warning.message).startswith("mirlo: ")]
        if problem is not None:
            outcome.wrong.append(f"{problem}; arguments {described(sample)}")
        elif reasons:
            outcome.refused[reasons[0][:300]] += 1
        elif compiled:
            outcome.right += 1
    return outcome


def _is_as_exact(sample: Sample, actual: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Return whether errors are at most twice those of PyTorch, by its results in f64."""
    import torch

    wide = replace(sample, leaves=[_widened(leaf) for leaf in sample.leaves])
    exact = _gradients(wide, "aot_eager", None)
    if exact is None:
        return False
    for ours, theirs, true in zip(actual, expected, exact, strict=True):
        if ours is None or theirs is None or true is None or not ours.is_floating_point():
            continue
        bound = 2 * (theirs.double() - true).abs().max() + torch.finfo(ours.dtype).eps * true.abs().max()
        if not (ours.double() - true).abs().max() <= bound:
            return False
    return True


def _widened(leaf: Any) -> Any:
    """Return a tensor of floats as f64, all else as it is."""
    import torch

    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _gradients(sample: Sample, backend: str, options: dict[str, Any] | None) -> list[Any] | None:
    """Return the results and the gradients of the arguments; None if there are none."""
    import torch

    def is_differentiable(tensor: Any) -> bool:
        return bool(tensor.is_floating_point() or tensor.is_complex())

    torch._dynamo.reset()
    torch.manual_seed(0)
    arguments = [tensor.clone().requires_grad_(is_differentiable(tensor)) for tensor in sample.tensors]
    results = torch.compile(lambda *tensors: sample.call(tensors), backend=backend, options=options)(*arguments)
    sums = []
    for result in results:
        if result.requires_grad:
            factors = torch.linspace(0.5, 1.5, result.numel(), dtype=torch.float64).reshape(result.shape)
            product = (result * factors.to(result.dtype)).sum()
            sums.append(product.abs() if product.is_complex() else product)
    inputs = [tensor for tensor in arguments if tensor.requires_grad]
    if not sums or not inputs:
        return None
    gradients = torch.autograd.grad(sum(sums), inputs, allow_unused=True)
    return [*(result.detach() for result in results), *gradients]


def run(
    entry: Any, types: Sequence[str], most: int, checked: Callable[[Any, Any, int], Outcome] = check
) -> dict[str, Outcome]:
    """Check an operator in a child process; a crash is a failure."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run_child(entry, types, most, checked, writer)
    os.close(writer)
    with os.fdopen(reader) as file:
        lines = file.read().splitlines()
    _, status = os.waitpid(child, 0)
    result = {}
    for line in lines:
        kind, right, wrong, refused, failed = json.loads(line)
        result[kind] = Outcome(right, wrong, Counter(refused), Counter(failed))
    if status:
        number = os.waitstatus_to_exitcode(status)
        missing = next((kind for kind in types if kind not in result), types[-1])
        reason = "takes too long" if number == -signal.SIGALRM else f"the process ended with {number}"
        result.setdefault(missing, Outcome()).failed[reason] += 1
    return result


def _run_child(
    entry: Any, types: Sequence[str], most: int, checked: Callable[[Any, Any, int], Outcome], writer: int
) -> None:
    import torch

    signal.alarm(SECONDS)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with os.fdopen(writer, "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in types:
            dtype = getattr(torch, TYPES[kind])
            if not entry.supports_dtype(dtype, "cpu"):
                continue
            outcome = checked(entry, dtype, most)
            file.write(json.dumps([kind, outcome.right, outcome.wrong, outcome.refused, outcome.failed]) + "\n")
            file.flush()
    os._exit(0)


def _load() -> None:
    """Load what child processes need, once for all of them."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    (entry,) = entries(("t",))
    check(entry, torch.float32, 1)


Rows = dict[str, dict[str, Outcome]]
"""By operator and element type."""


def read_logs(paths: Sequence[str]) -> Rows:
    """Return the outcomes that runs have printed."""
    logs: Rows = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            if line.startswith("["):
                name, kind, right, wrong, refused, failed = json.loads(line)
                outcome = Outcome(right, wrong, Counter(refused), Counter(failed))
                if outcome.total:
                    logs.setdefault(name, {})[kind] = outcome
    return logs


_FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.-]+/)+")
"""The folders of a file that a message names."""


def page(rows: Rows) -> str:
    """Return the page of the outcomes: totals, operators that are compiled, and why others are refused."""
    lines = [
        "# Operators of PyTorch",
        "",
        "Generated by `python -m benchmarks.aten --page LOG ...`; do not edit. The samples are those of PyTorch's own",
        "operator database. Each was exported, imported, compiled for target `llvm`, and compared with PyTorch. An",
        "operator is supported if one of its samples is compiled; a program with a sample that is refused is an error.",
        "",
        "| type | operators | supported | samples of these | right | wrong | refused | not computed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    kinds = [kind for kind in TYPES if any(kind in outcomes for outcomes in rows.values())]
    for kind in kinds:
        of_kind = [outcomes[kind] for outcomes in rows.values() if kind in outcomes]
        kept = [each for each in of_kind if each.right or each.wrong]
        total, right = sum(each.total for each in kept), sum(each.right for each in kept)
        counts = [sum(len(each.wrong) for each in kept), *(sum(sum(c.values()) for c in column) for column in (
            [each.refused for each in kept], [each.failed for each in kept]))]  # fmt: skip
        share = f"{right} ({100 * right / max(total, 1):.1f} %)"
        lines.append(f"| {kind} | {len(of_kind)} | {len(kept)} | {total} | {share} | {' | '.join(map(str, counts))} |")
    lines += ["", "## Supported", "", "Right of all samples, by element type.", ""]
    lines += [f"| operator | {' | '.join(kinds)} |", f"| --- |{' ---: |' * len(kinds)}"]
    reasons: dict[str, set[str]] = {}
    for name, outcomes in sorted(rows.items()):
        if any(each.right or each.wrong for each in outcomes.values()):
            cells = [f"{outcomes[kind].right}/{outcomes[kind].total}" if kind in outcomes else "" for kind in kinds]
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
            continue
        for each in outcomes.values():
            for reason in each.refused or each.failed:
                shown, _, _ = (reason.partition(": ")[2] or reason).partition("; File ")
                reasons.setdefault(shown, set()).add(name)
    lines += ["", "## Refused", "", "| reason | operators |", "| --- | --- |"]
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        shown = " ".join(_FOLDERS.sub("", reason).replace("|", "/").split())
        lines.append(f"| {shown} | {', '.join(f'`{name}`' for name in sorted(names))} |")
    return "\n".join(lines)


def summary(rows: Rows) -> str:
    """Return the numbers of samples by element type, with the wrong, refused and failed ones."""
    lines = []
    for kind in TYPES:
        of_kind = {name: outcomes[kind] for name, outcomes in rows.items() if kind in outcomes}
        if not of_kind:
            continue
        total, right = sum(each.total for each in of_kind.values()), sum(each.right for each in of_kind.values())
        lines.append(f"{kind}: {right} of {total} samples of {len(of_kind)} operators are right ({right / total:.1%})")
        for name, each in sorted(of_kind.items()):
            lines += [f"  {name}: wrong: {text}" for text in each.wrong]
            lines += [f"  {name}: {count} {text}" for text, count in (each.refused + each.failed).items()]
    return "\n".join(lines)


def main() -> None:
    """Check operators and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aten", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="names of the database; all without any")
    parser.add_argument("--types", default="f32,f16,bf16,i64", help="element types (%(default)s)")
    parser.add_argument("--most", type=int, default=1000, help="samples of an operator and a type")
    parser.add_argument("--part", default="0/1", help="which part of the operators: 0/4 is every fourth")
    parser.add_argument("--gradients", action="store_true", help="compare gradients too")
    parser.add_argument("--sum", nargs="+", metavar="LOG", help="print what these runs have found, by element type")
    parser.add_argument("--page", nargs="+", metavar="LOG", help="print the page of what these runs have printed")
    arguments = parser.parse_args()
    if arguments.page:
        print(page(read_logs(arguments.page)))
        return
    if arguments.sum:
        print(summary(read_logs(arguments.sum)))
        return
    import torch

    types, (part, parts) = arguments.types.split(","), map(int, arguments.part.split("/"))
    print(f"torch {torch.__version__}", flush=True)
    start = time.perf_counter()
    _load()
    for entry in entries(arguments.operators)[part::parts]:
        for kind, outcome in run(
            entry, types, arguments.most, check_gradients if arguments.gradients else check
        ).items():
            row = [name_of(entry), kind, outcome.right, outcome.wrong, outcome.refused, outcome.failed]
            print(json.dumps(row), flush=True)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
