"""What the tools find of accelerators that compute wrongly: the page `docs/broken-accelerators.md`.

python -m benchmarks.broken_accelerators > docs/broken-accelerators.md
python -m benchmarks.broken_accelerators --keep found.json > PAGE            # goes on where it was interrupted
python -m benchmarks.broken_accelerators wrong_tile schedule_in_threads      # some rows

The accelerators are those of the tests, in `test/support`: code generators whose device is wrong, and targets whose
own rules are. A row is a fault. `check-target` checks the pattern or the rules that have it; `bisect` and placement
by measured cost get a network that the accelerator takes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import mirlo
from mirlo.driver.place.decide import decide_placement
from mirlo.driver.request import CompileRequest
from mirlo.passes.byoc.target_list import Targets
from mirlo.tools.bisect.bisect import Departure, bisect
from mirlo.tools.bisect.trial import TrialOptions
from mirlo.tools.conformance.case_search import CaseCheck
from mirlo.tools.conformance.check import OK, RuleResults, names, own_rules
from mirlo.tools.conformance.patterns import check_patterns

sys.path.insert(0, str(Path(__file__).parent.parent / "test" / "support"))

import broken_accelerators as units
import broken_rules as chips

FOUND, MISSED, HIDDEN, ACCUSED, ACCEPTED, NONE = "found", "missed", "hidden", "accused", "accepted", ""
TOLERANCE = 1e-4
"""The error of a network from which on it counts as wrong."""
HEADER = """# Broken accelerators

Written by `python -m benchmarks.broken_accelerators`; do not edit. The accelerators are in `test/support`.

What Mirlo's tools find of an accelerator that computes wrongly. A row is a fault of a code generator's device, or of a
target's own rules.

- *check-target*: `mirlo check-target` calls the pattern or the rule wrong.
- *bisect*: on a network that the accelerator takes, `mirlo bisect` names the pattern or the rule.
- *placement*: `--cost measured` gives the accelerator nothing of the network, although its figures say that it is
  faster than the processor.
- *hidden*: the network's results are right, or differ by rounding; nothing is to be found. An empty cell: the tool
  does not apply.

Correct accelerators, which differ in what they take, must be *accepted*: no tool may accuse them.
"""


@dataclass(frozen=True)
class Subject:
    """An accelerator, right or wrong."""

    fault: str
    """What is wrong with it; empty for a correct one."""
    title: str
    register: Callable[[], str]
    """Registers it, and returns the name of its target."""
    network: Callable[[], onnx.ModelProto]
    has_device: bool

    @property
    def threads(self) -> int:
        """Return the threads that show a fault of rules for several."""
        return 2 if self.fault == "schedule_in_threads" else 1

    def targets(self, name: str) -> str:
        return f"{name},llvm" if self.has_device else name


def subjects() -> Iterator[Subject]:
    """Yield the accelerators of the page."""
    for fault in (*units.FAULTS, units.LYING_FIGURES):
        targets, shown = partial(units.accelerator, fault), partial(units.network_of, fault)
        yield Subject(fault, fault, targets, shown, True)
    for fault in chips.RULE_FAULTS:
        yield Subject(fault, fault, lambda fault=fault: chips.chip(fault), chips.chip_network, False)  # type: ignore[misc]
    for title, variant in units.VARIANTS.items():
        targets = partial(units.accelerator, "", variant, f"right_{title}")
        yield Subject("", title, targets, units.quantized_network, True)
    for kind in chips.KINDS:
        yield Subject("", kind, lambda kind=kind: chips.chip("", kind), chips.chip_network, False)  # type: ignore[misc]


def checked(subject: Subject, name: str) -> str:
    """Return what `check-target` says."""
    if subject.fault == units.LYING_FIGURES:
        return NONE
    if subject.has_device:
        if subject.fault:  # one pattern is enough
            alone = units.Variant(patterns=(units.SHOWN_BY[subject.fault],))
            name = units.accelerator(subject.fault, alone, f"{subject.fault}_alone")
        checks = list(check_patterns(subject.targets(name)))
        has_complaint = any(_complains(check) for check in checks)
    else:
        rules = RuleResults(name, [rule for rule in own_rules(name, names(), True) if rule.target == name])
        rules.check([], [])
        verdicts = [judge(outcome).status for _, _, judge, outcome in rules.judged]
        has_complaint = set(verdicts) - {OK} != set() or bool(rules.unreached)
        has_complaint |= any(_complains(check) for check in rules.checks.values())
    return _verdict(subject, has_complaint)


def _complains(check: CaseCheck) -> bool:
    wrong = (text for texts in (*check.kinds.values(), *check.failures.values()) for text in texts)
    return any(wrong) or bool(check.untaken)


def _verdict(subject: Subject, has_complaint: bool) -> str:
    if subject.fault:
        return FOUND if has_complaint else MISSED
    return ACCUSED if has_complaint else ACCEPTED


def inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return random inputs of a network."""
    random = np.random.default_rng(5)
    shapes = {v.name: [dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return {name: random.uniform(-2.3, 2.7, shape).astype(np.float32) for name, shape in shapes.items()}


def is_shown(subject: Subject, name: str) -> bool:
    """Return whether the network's result is wrong."""
    model = subject.network()
    feeds = inputs(model)
    right, accelerated = (
        mirlo.compile(model, target, cache=False, jobs=1, threads=subject.threads)
        for target in ("llvm", subject.targets(name))
    )
    wanted = right.run(feeds)
    results = [accelerated.run(feeds) for _ in range(2)]
    return any(
        not np.allclose(outputs[key], wanted[key], atol=TOLERANCE, rtol=TOLERANCE)
        for outputs in results
        for key in wanted
    )


def bisected(subject: Subject, name: str) -> str:
    """Return what `bisect` says."""
    if subject.fault and not is_shown(subject, name):
        return HIDDEN
    model = subject.network()
    with tempfile.TemporaryDirectory() as folder:
        outcome = bisect(
            model, inputs(model), against="reference", settings=TrialOptions(subject.targets(name), subject.threads),
            bundle=Path(folder) / "bundle", progress=lambda text: None,
        )  # fmt: skip
    if not subject.fault:
        return ACCUSED if isinstance(outcome, Departure) else ACCEPTED
    if not isinstance(outcome, Departure):
        return MISSED
    own = [rule.name for rule in own_rules(name, names(), True) if rule.target == name]
    blamed = outcome.culprit.pattern.startswith(f"{name}.") or any(
        f" {rule} (" in text for rule in own for text in outcome.culprit.rules
    )
    return FOUND if blamed else MISSED


def placed(subject: Subject, name: str) -> str:
    """Return whether placement by measured cost leaves the accelerator out."""
    if subject.fault != units.LYING_FIGURES:
        return NONE
    request = CompileRequest(subject.network(), subject.targets(name), placement="measured", cache=False)
    decision = decide_placement(request, Targets.parse(subject.targets(name)))
    return MISSED if any(decision.nodes.values()) else FOUND


BY_TOOL = {"check-target": checked, "bisect": bisected, "placement": placed}


def row(subject: Subject, kept: dict[str, str], keep: Path | None) -> list[str]:
    """Return the result of each tool on an accelerator; stored results are reused."""
    name = subject.register()
    for tool, mark_of in BY_TOOL.items():
        key = f"{subject.title} {tool}"
        if key in kept:
            continue
        start = time.monotonic()
        with contextlib.redirect_stderr(io.StringIO()), np.errstate(all="ignore"):
            kept[key] = mark_of(subject, name)
        print(f"{key}: {kept[key] or '-'} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        if keep is not None:
            keep.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return [kept[f"{subject.title} {tool}"] for tool in BY_TOOL]


def page(rows: Sequence[tuple[Subject, list[str]]]) -> str:
    """Return the page of the documentation; it says how many accelerators have no row."""
    lines = [HEADER]
    for title, is_wrong in (("Faults", True), ("Correct accelerators", False)):
        known = sum(bool(subject.fault) == is_wrong for subject in subjects())
        some = [(subject, marks) for subject, marks in rows if bool(subject.fault) == is_wrong]
        lines += [f"## {title}", ""]
        if some:
            lines += [f"| | {' | '.join(BY_TOOL)} |", f"| --- |{' --- |' * len(BY_TOOL)}"]
            lines += [f"| {subject.title} | {' | '.join(marks)} |" for subject, marks in some] + [""]
        columns = zip(BY_TOOL, zip(*(marks for _, marks in some), strict=True), strict=False)
        counts = [f"{tool}: {_counted(marks)}" for tool, marks in columns if any(marks)]
        lines += [". ".join([f"{len(some)} of {known} were run", "; ".join(counts)]).rstrip(". ") + ".", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _counted(marks: Sequence[str]) -> str:
    seen = sorted({mark for mark in marks if mark})
    return ", ".join(f"{marks.count(mark)} {mark}" for mark in seen)


def main() -> None:
    """Print the page; with titles, the rows of those accelerators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("titles", nargs="*")
    parser.add_argument("--keep", type=Path, help="a file of results, which are not computed again")
    parser.add_argument("--kept-only", action="store_true", help="show the results of that file, compute nothing")
    arguments = parser.parse_args()
    kept: dict[str, str] = {}
    if arguments.keep is not None and arguments.keep.exists():
        kept = json.loads(arguments.keep.read_text(encoding="utf-8"))
    names()
    chosen = [subject for subject in subjects() if not arguments.titles or subject.title in arguments.titles]
    if arguments.kept_only:
        chosen = [subject for subject in chosen if all(f"{subject.title} {tool}" in kept for tool in BY_TOOL)]
    rows = [(subject, row(subject, kept, arguments.keep)) for subject in chosen]
    if arguments.titles:
        print("\n".join(f"{subject.title}: {', '.join(filter(None, marks))}" for subject, marks in rows))
    else:
        print(page(rows), end="")


if __name__ == "__main__":
    main()
