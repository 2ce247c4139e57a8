"""`mirlo bisect`: the first node, and the first pass, whose result departs from an oracle's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.inputs import graph_inputs, input_types
from mirlo.passes.byoc.target_list import Targets
from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.inputs import random_input
from mirlo.runtime.kinds import Kind
from mirlo.tools.bisect.bisect import Rounding, bisect, require_onnx
from mirlo.tools.bisect.compare import Tolerance
from mirlo.tools.bisect.definitions import InexactStep, first_inexact_step
from mirlo.tools.bisect.trial import TrialOptions
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, read_array, require_file
from mirlo.tools.cli.progress import Progress
from mirlo.tools.cli.remote import board_options

if TYPE_CHECKING:
    from mirlo.dialects.core.types import TensorType
    from mirlo.tools.bisect.bisect import Departure
    from mirlo.tools.bisect.passes import Culprit

DEFINITIONS = "definitions"
"""What results are compared with that are those of the model itself."""


def execute(arguments: Arguments) -> None:
    """Search and print the result; a departure is an error."""
    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CompiledAlready(f"{arguments.model} is compiled already: bisect the model that it was made from")
    if arguments.against == DEFINITIONS:
        _search_definitions(arguments)
        return
    require_onnx(arguments.model)
    arrays = {name: read_array(path, name) for name, path in arguments.input}
    feeds = _inputs(arguments, arrays)
    targets = Targets.parse(arguments.target or "llvm")
    settings = TrialOptions(
        arguments.target or "llvm",
        arguments.threads or 1,
        arguments.options.get("pipeline"),
        Tolerance(arguments.rtol, arguments.atol, targets.error_of(targets.names)),
        plugins=tuple(arguments.plugin),
        board=board_options(arguments),
    )
    bundle = Path(arguments.output or f"{Path(arguments.model).stem}-bisect")
    with Progress(f"bisecting {Path(arguments.model).name}", arguments.verbose) as progress:
        departure = bisect(
            arguments.model, feeds, against=arguments.against, settings=settings, bundle=bundle,
            progress=progress,
        )  # fmt: skip
    if departure is None:
        print(f"{arguments.model}: every output is as {arguments.against} computes it")
        return
    if isinstance(departure, Rounding):
        print(f"no node departs on the inputs that {arguments.against} computes for it")
        print(f"  '{departure.node}' ({departure.operator}) amplifies the rounding of what goes before")
        print(f"  it begins at '{departure.began}': {departure.how}")
        sys.stdout.flush()
        raise CommandError(f"{arguments.model} departs from {arguments.against} by rounding that is amplified")
    _print_departure(departure, bundle)
    sys.stdout.flush()
    raise CommandError(f"{arguments.model} departs from {arguments.against}")


def _search_definitions(arguments: Arguments) -> None:
    """Search the first rule, pass or kernel that changes what the model computes."""
    with Progress(f"bisecting {Path(arguments.model).name}", arguments.verbose) as progress:
        step = first_inexact_step(
            arguments.model, arguments.target or "llvm", threads=arguments.threads or 1, shapes=arguments.shapes,
            progress=progress,
        )  # fmt: skip
    if not isinstance(step, InexactStep):
        print(f"{arguments.model}: {step.compared} rules, passes and kernels keep what the model computes")
        if step.outside:
            print(f"  {step.outside} are not compared: `mirlo verify` and `mirlo verify --graph` list them")
        return
    print(step.what)
    if step.details:
        print(step.details)
    sys.stdout.flush()
    raise CommandError(f"{arguments.model} departs from its definition")


def _print_departure(departure: Departure, bundle: Path) -> None:
    node = f"'{departure.node}' ({departure.operator}), node {departure.index + 1} of {departure.nodes}"
    print(f"first node that departs: {node}")
    print(f"  {departure.how}")
    if len(departure.unit) > 1:
        print(f"  one pattern computes {', '.join(departure.unit)}")
    if len(departure.part) > len(departure.unit):
        print(f"  alone it does not: it takes {', '.join(departure.part)}")
    for line in _culprit(departure.culprit):
        print(line)
    print(f"{bundle}/: the part as a model, its inputs, what is expected, the IR; replay there with")
    print(f"  {departure.replay}")
    if not departure.replays:
        print("replayed here it does not depart: what departs changes from run to run")


def _culprit(culprit: Culprit) -> list[str]:
    if culprit.pattern:
        verb = "fails" if culprit.failed else "departs"
        lines = [f"the code generator {verb}: {culprit.pattern}, in pass {culprit.name}"]
    elif culprit.failed:
        lines = [f"it fails in {_step_text(culprit.name)}"]
    elif culprit.name is not None:
        lines = [f"first pass that departs: {culprit.name}"]
        if culprit.rule:
            lines.append(f"  by the rule {culprit.rule}")
    else:
        lines = [f"no single pass departs: {culprit.reason}", f"  {culprit.pipeline}"]
    return lines + ["rules at work:", *(f"  {rule}" for rule in culprit.rules)] if culprit.rules else lines


def _step_text(name: str | None) -> str:
    """Return the name of a step for messages."""
    others = {
        "": "the start of the compilation", "import": "the import", "emit": "code generation, after all passes",
        "load": "loading the code", "run": "the call of the compiled model",
    }  # fmt: skip
    return others.get(name or "", f"pass {name}")


def _inputs(arguments: Arguments, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the given arrays, and random ones for the other inputs."""
    loaded = models.load(arguments.model)
    inputs = graph_inputs(
        loaded.content.graph, {**arguments.shapes, **{name: array.shape for name, array in arrays.items()}}
    )
    unknown = set(arrays) - {value.name for value in inputs}
    if unknown:
        names = ", ".join(value.name for value in inputs) or "none"
        raise CommandError(f"{arguments.model} has no input '{sorted(unknown)[0]}'; inputs: {names}")
    shapes = {name: array.shape for name, array in arrays.items()} | arguments.shapes
    for value in inputs:
        kind = input_types([value], {}, loaded.name)[value.name]
        if isinstance(kind, Kind):
            raise CommandError(f"input '{value.name}' is {kind}: only models on tensors of numbers can be bisected")
    types = input_types(inputs, shapes, loaded.name)
    rng = np.random.default_rng(arguments.seed)
    feeds = {}
    for name, input_type in types.items():
        if name in arrays:
            feeds[name] = arrays[name]
            continue
        assert not isinstance(input_type, Kind)  # others were refused above
        if not input_type.is_static:
            raise CommandError(
                f"input '{name}' is {input_type}: give the sizes of its dims, {_dim_flags(input_type)}, its shape, "
                f"--shape {name}=..., or an array, --input {name}=FILE.npy"
            )
        feeds[name] = random_input(TensorSpec(name, str(input_type.dtype), input_type.static_shape), {}, rng)
    return feeds


def _dim_flags(type_: TensorType) -> str:
    names = sorted({name for dim in type_.shape for name in D.symbols_of(dim)})
    return " ".join(f"--dim {name}=N" for name in names)
