"""Reports of explanations, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mirlo.passes.figures import KernelExpectation
from mirlo.passes.legalize.conversion import LegalizationRecord
from mirlo.passes.lower.parallel import MIN_TRIPS
from mirlo.passes.report_section import ReportSection
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Attempt, Decline, Rule
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.session import PassDecision
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.regions import region_rows
from mirlo.tools.explain.model import ExplainedKernel, ExplainedNode, Explanation
from mirlo.tools.explain.rules import rule_json, short_position
from mirlo.tools.tables import approximation_lines, bytes_text, columns

NEXT_BEST = 5
"""Candidates that are printed after the chosen one."""


class UnknownNode(MirloError):
    """The model has no node of this name."""

    error_code = "MIR0709"
    remedy = "Name a node or kernel that the message suggests."


def only_node(explanation: Explanation, name: str) -> Explanation:
    """Return the part of an explanation that is about one node and its kernels."""
    nodes = [node for node in explanation.nodes if node.name == name]
    if not nodes:
        names = [node.name for node in explanation.nodes]
        raise UnknownNode(f"the model has no node '{name}'{nearest(name, names)}")
    kernels = [kernel for kernel in explanation.kernels if kernel.name in nodes[0].kernels]
    return Explanation(explanation.target, nodes, kernels, [], [], explanation.failure)


def only_kernel(explanation: Explanation, name: str) -> Explanation:
    """Return the part of an explanation that is about one kernel and its nodes."""
    kernels = [kernel for kernel in explanation.kernels if kernel.name == name]
    nodes = [node for node in explanation.nodes if name in node.kernels]
    return Explanation(explanation.target, nodes, kernels, [], [], explanation.failure, stages=explanation.stages)


def text_lines(explanation: Explanation) -> Iterator[str]:
    """Format nodes, then kernels, then memory as text."""
    for node in explanation.nodes:
        yield from _node(node, explanation.failure is not None)
    for kernel in explanation.kernels:
        yield from _kernel(kernel, with_trace=bool(explanation.stages))
    for stages in explanation.stages.values():
        for stage in stages:
            yield f"--- {stage.title}"
            yield from stage.text.rstrip().split("\n")
    if explanation.regions:
        yield from columns(list(region_rows(explanation.regions)), numbers={2, 3})
    yield from map(str, explanation.measured)
    yield from approximation_lines(explanation.approximations)
    for record in explanation.memory:
        yield f"memory of @{record.function}: {_size_text(record.arena)}, at least {bytes_text(record.bound)} needed"
    for section in explanation.sections:
        yield from section.lines()


def _size_text(size: object) -> str:
    """Format a size in bytes, which may depend on symbols."""
    return bytes_text(size) if isinstance(size, int) else f"{size} bytes"


def _node(node: ExplainedNode, failed: bool) -> Iterator[str]:
    yield f"node {node.name}"
    if node.tuned:
        yield f"  measured best: {_choices(node.tuned)}"
    yield from (f"  {decision}" for decision in node.decisions)
    for target, reason in node.given_back.items():
        yield f"  given back by '{target}': {reason}"
    for record in node.operators:
        yield from _operator(record)
    if node.given_to:
        yield f"  taken by a code generator, as {', '.join(node.given_to)}"
    elif not node.operators and failed:
        yield "  nothing is known of it: the compilation failed"
    elif not node.operators:
        how = "it is part of what others compute" if node.kernels else "it was simplified away, or its result is known"
        yield f"  no operator of it was left to legalize: {how}"
    if node.kernels:
        yield f"  kernels: {', '.join(f'@{name}' for name in node.kernels)}"


def _operator(record: LegalizationRecord) -> Iterator[str]:
    if record.rule is None:
        yield f"  {record.operator}: no rule took it"
    else:
        strategy = f", as requested by strategy '{record.chosen}'" if record.chosen else ""
        created = f" → {', '.join(record.created)}" if record.created else ""
        yield f"  {record.operator}: {_rule(record.rule)}{strategy}{created}"
    yield from _declined(record.attempts, "    ")


def _kernel(kernel: ExplainedKernel, with_trace: bool) -> Iterator[str]:
    calls = f", called {kernel.calls} times" if kernel.calls > 1 else ""
    yield f"kernel @{kernel.name}{calls}: {', '.join(kernel.nodes)}"
    if kernel.tuned:
        yield f"  measured best: {_choices(kernel.tuned)}"
    yield from (f"  {decision}" for decision in kernel.decisions)
    if kernel.schedule is not None:
        suffix = ", given by --schedule" if kernel.schedule.is_given else ""
        yield f"  schedule: {_rule(kernel.schedule.rule)}{suffix}"
        yield from _declined(kernel.schedule.attempts, "    ")
        yield from (f"  chosen: {line}" for line in _chosen(kernel.schedule))
        if kernel.expectation is not None:
            yield from _expected(kernel.expectation)
        if with_trace:
            yield f'  trace, for schedules={{"{kernel.name}": schedule}}:'
            yield from (f"    {line}" for line in str(kernel.schedule.trace).split("\n"))
    if kernel.parallel is not None:
        yield f"  parallel loops: {_shared_loops(kernel.parallel.shared)}"
        yield from (f"    declined: {reason}" for reason in kernel.parallel.declined)
    for choice in kernel.intrinsics:
        yield f"  tir.{choice.intrinsic} on {choice.type}: {_rule(choice.rule)}"
        yield from _declined(choice.attempts, "    ")
    if kernel.verdict is not None:
        yield f"  compared with its definition: {kernel.verdict.summary}"
    if kernel.bounds is not None and kernel.bounds.guarded:
        yield f"  tested at run time to be in bounds: {len(kernel.bounds.guarded)} of {kernel.bounds.accesses} accesses"
        yield from (f"    {access}" for access in kernel.bounds.guarded)
    if kernel.bounds is not None and kernel.bounds.unproven:
        yield f"  not proven to be in bounds: {len(kernel.bounds.unproven)} of {kernel.bounds.accesses} accesses"
        yield from (f"    {access}" for access in kernel.bounds.unproven)


def _chosen(schedule: ScheduleRecord) -> Iterator[str]:
    """Return the choices of the rule, or those of each rule that schedules a part of the function."""
    if schedule.choices:
        names = [choice.name for choice in schedule.rule.choices if choice.name in schedule.choices]
        yield _choices({name: schedule.choices[name] for name in names})
        return
    for call in schedule.trace:
        if call.primitive == "apply_rule" and call.named:
            blocks = f"{call.arguments[0]} of {', '.join(call.arguments[1])}: " if len(call.arguments) > 1 else ""
            yield f"{blocks}{_choices(call.named)}"


def _expected(expectation: KernelExpectation) -> Iterator[str]:
    """Format the expected time, and the candidates that come next."""
    unit = f" {expectation.unit}" if expectation.unit else ""
    parts = _shares(expectation.parts, expectation.time)
    yield f"  expected: {_figure(expectation.time)}{unit}{': ' if parts else ''}{parts}"
    if not expectation.candidates:
        return
    own, *others = expectation.candidates
    count = len(expectation.candidates)
    yield f"  {expectation.compared} compared: {count}, the chosen one first{f', in{unit}' if unit else ''}"
    rows = [
        (
            f"    {_choices(each.values) or 'its own'}", _figure(each.time), f"{each.time / own.time:.3f}",
            each.limit and f"limited by {each.limit}", _shares(each.parts, each.time),
        )
        for each in [own, *others[:NEXT_BEST]]
    ]  # fmt: skip
    yield from columns(rows, numbers={1, 2})


def _figure(time: float) -> str:
    return f"{time:.0f}" if time >= 1000 else f"{time:.4g}"


def _shares(parts: Mapping[str, float], whole: float) -> str:
    return ", ".join(f"{name} {part / whole:.1%}" for name, part in parts.items() if part and whole)


def _shared_loops(least: Sequence[int]) -> str:
    """Return how many loops threads share; dynamic ones may have too few iterations in a call."""
    limits = ", ".join(str(number) for number in least if number > MIN_TRIPS)
    return f"{len(least)} on several threads" + (f", those of fewer than {limits} iterations on one" if limits else "")


def _choices(values: ChoiceValues) -> str:
    shown = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def _rule(rule: Rule) -> str:
    return f"{rule.name} [{rule.target}] {short_position(rule)}"


def _declined(attempts: Iterable[Attempt], indent: str) -> Iterator[str]:
    return (f"{indent}declined: {attempt}" for attempt in attempts)


def as_json(explanation: Explanation) -> dict[str, object]:
    """Return the same facts as JSON."""
    followed = [stage for stages in explanation.stages.values() for stage in stages]
    stages = [{"stage": stage.title, "text": stage.text} for stage in followed]
    return {
        "target": explanation.target,
        "nodes": [
            {
                "name": node.name,
                "operators": [_operator_json(record) for record in node.operators],
                "kernels": node.kernels,
                "tuned": node.tuned,
                "passes": _decisions_json(node.decisions),
            }
            for node in explanation.nodes
        ],
        "kernels": [_kernel_json(kernel) for kernel in explanation.kernels],
        "memory": [
            {"function": record.function, "arena": record.arena, "bound": record.bound} for record in explanation.memory
        ],
        "approximations": [str(each) for each in explanation.approximations],
        "regions": [region.to_json() for region in explanation.regions],
        "measured": [{"operator": m.operator, "microseconds": m.microseconds} for m in explanation.measured],
        **_sections_json(explanation.sections),
        "failure": explanation.failure,
        "stages": stages,
        "way": stages,  # deprecated: another name of "stages", written until 0.2
    }


def _sections_json(sections: Sequence[ReportSection]) -> dict[str, object]:
    """Return the sections of packages by their keys."""
    by_key: dict[str, list[object]] = {}
    for section in sections:
        by_key.setdefault(section.key, []).append(section.to_json())
    return dict(by_key)


def _operator_json(record: LegalizationRecord) -> dict[str, object]:
    return {
        "operator": record.operator,
        "rule": rule_json(record.rule) if record.rule is not None else None,
        "strategy": record.chosen,
        "created": list(record.created),
        "declined": _declined_json(record.attempts),
    }


def _kernel_json(kernel: ExplainedKernel) -> dict[str, object]:
    schedule, parallel = kernel.schedule, kernel.parallel
    return {
        "name": kernel.name,
        "calls": kernel.calls,
        "nodes": kernel.nodes,
        "tuned": kernel.tuned,
        "passes": _decisions_json(kernel.decisions),
        "schedule": None
        if schedule is None
        else {
            "rule": rule_json(schedule.rule),
            "declined": _declined_json(schedule.attempts),
            "trace": schedule.trace.as_json(),
            "given": schedule.is_given,
        },
        "expected": None if kernel.expectation is None else _expectation_json(kernel.expectation),
        "parallel": None
        if parallel is None
        else {
            "loops": len(parallel.shared),
            "least": list(parallel.shared),
            "declined": [str(reason) for reason in parallel.declined],
        },
        "intrinsics": [
            {
                "intrinsic": f"tir.{choice.intrinsic}",
                "type": choice.type,
                "rule": rule_json(choice.rule),
                "declined": _declined_json(choice.attempts),
            }
            for choice in kernel.intrinsics
        ],
        "verified": None if kernel.verdict is None else kernel.verdict.as_json(),
        "bounds": None
        if kernel.bounds is None
        else {
            "accesses": kernel.bounds.accesses,
            "unproven": list(map(str, kernel.bounds.unproven)),
            "tested": list(map(str, kernel.bounds.guarded)),
        },
    }


def _expectation_json(expectation: KernelExpectation) -> dict[str, object]:
    return {
        "time": expectation.time,
        "unit": expectation.unit,
        "parts": dict(expectation.parts),
        "compared": expectation.compared,
        "candidates": [
            {"choices": dict(each.values), "time": each.time, "limit": each.limit, "parts": dict(each.parts)}
            for each in expectation.candidates
        ],
    }


def _decisions_json(decisions: Iterable[PassDecision]) -> list[dict[str, object]]:
    return [
        {"pass": decision.decided_by, "declined": decision.outcome.reason, "facts": _facts_json(decision.outcome)}
        if isinstance(decision.outcome, Decline)
        else {"pass": decision.decided_by, "outcome": decision.outcome}
        for decision in decisions
    ]


def _facts_json(decline: Decline) -> dict[str, str | float | None]:
    return {name: _as_json(value) for name, value in decline.facts.items()}


def _declined_json(attempts: Iterable[Attempt]) -> list[dict[str, object]]:
    return [
        {
            "rule": rule_json(attempt.rule),
            "reason": attempt.decline.reason,
            "facts": _facts_json(attempt.decline),
        }
        for attempt in attempts
    ]


def _as_json(value: object) -> str | float | None:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
