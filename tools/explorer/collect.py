"""The data that a page, or a viewer of graphs, shows of a compilation: nodes, kernels, calls, stages, times, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, TypedDict

from mirlo.runtime.artifact import KernelInfo
from mirlo.runtime.errors import MirloError
from mirlo.runtime.profile import Profile
from mirlo.runtime.records import dataclass
from mirlo.tools.explain.kernel import KernelStage
from mirlo.tools.explain.model import Explanation, explain_model
from mirlo.tools.explain.report import as_json

REPEATS = 20
"""Runs whose median is a kernel's time."""


class StageData(TypedDict):
    """A stage of the graph or of a kernel: its lines, and the numbers of the nodes of each one."""

    title: str
    text: str
    nodes: list[list[int]]


class CallData(TypedDict):
    """A call of a kernel."""

    kernel: int
    nodes: list[int]
    microseconds: float | None
    share: float | None
    flops: int | None
    bytes: int | None
    """Lower bound of what it reads and writes."""
    live: int | None
    """Bytes of intermediate results that are kept while it runs."""


@dataclass(frozen=True)
class MeasuredModel:
    """The same model compiled to run, with the time of each of its kernels."""

    kernels: tuple[KernelInfo, ...]
    profile: Profile
    memory: str


@dataclass
class Exploration:
    """All data of a page."""

    title: str
    explanation: Explanation
    calls: list[CallData]
    graph: list[StageData]
    kernels: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    summary: list[tuple[str, str]] = field(default_factory=list)
    """Names and values of what is known of the whole model."""


def explore(model: str, title: str, measured: MeasuredModel | str | None, target: str, **options: Any) -> Exploration:
    """Compile a model to be read; `options` are those of `explain_model`.

    `measured` is the same compilation with times, the reason why there are none, or None.
    """
    explanation = explain_model(model, target, follow=True, **options)
    if explanation.failure is not None:
        raise MirloError(f"the compilation failed: {explanation.failure}")
    summary = [("target", explanation.target), ("kernels", str(len(explanation.kernels)))]
    if isinstance(measured, MeasuredModel):
        summary += [("time of all kernels", f"{measured.profile.microseconds / 1000:.3f} ms")]
        summary += [("memory", measured.memory)]
    elif measured is not None:
        summary.append(("time", f"not measured: {measured}"))
    numbers = {node.name: i for i, node in enumerate(explanation.nodes)}
    described = as_json(replace(explanation, stages={}))
    nodes, kernels = described["nodes"], described["kernels"]
    assert isinstance(nodes, list)
    assert isinstance(kernels, list)
    for kernel in kernels:
        kernel["stages"] = [_stage(stage, numbers) for stage in explanation.stages.get(kernel["name"], ())]
        kernel["nodes"] = [numbers[name] for name in kernel["nodes"]]
    graph = [_stage(stage, numbers) for stage in explanation.graph]
    calls = _calls(explanation, numbers, measured if isinstance(measured, MeasuredModel) else None)
    return Exploration(title, explanation, calls, graph, kernels, nodes, summary)


def _stage(stage: KernelStage, numbers: Mapping[str, int]) -> StageData:
    nodes = [[numbers[name] for name in names if name in numbers] for names in stage.nodes]
    return {"title": stage.title, "text": stage.text.rstrip("\n"), "nodes": nodes}


def _calls(explanation: Explanation, numbers: Mapping[str, int], measured: MeasuredModel | None) -> list[CallData]:
    """Return the calls in order, with times and sizes where the executable makes the same ones."""
    names = [kernel.name for kernel in explanation.kernels]
    symbols = [info.symbol for info in measured.kernels] if measured is not None else []
    same = symbols == [name for name, _ in explanation.calls]
    live = _live(explanation)
    calls: list[CallData] = []
    for i, (name, labels) in enumerate(explanation.calls):
        row, info = (measured.profile[i], measured.kernels[i]) if same and measured is not None else (None, None)
        calls.append(
            {
                "kernel": names.index(name),
                "nodes": [numbers[label] for label in labels if label in numbers],
                "microseconds": row.microseconds if row is not None else None,
                "share": row.share if row is not None else None,
                "flops": info.flops if info is not None else None,
                "bytes": info.bytes if info is not None else None,
                "live": live[i] if i < len(live) else None,
            }
        )
    return calls


def _live(explanation: Explanation) -> list[int]:
    """Return the bytes that are alive during each call of the entry function."""
    record = next((record for record in explanation.memory if record.is_entry), None)
    if record is None or not record.buffers:
        return []
    return [
        sum(buffer.bytes for buffer in record.buffers if buffer.first <= i <= buffer.last)
        for i in range(len(explanation.calls))
    ]
