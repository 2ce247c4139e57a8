"""`mirlo run` of a program: a model that works on sequences, optional values or strings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.files import write_regular
from mirlo.runtime.inputs import random_input
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.files import write_arrays
from mirlo.tools.cli.progress import array_json, latency_json, profile_json
from mirlo.tools.tables import columns

if TYPE_CHECKING:
    from mirlo.runtime.compiled_program import Port
    from mirlo.runtime.profile import Profile
    from mirlo.runtime.program import Program

SHOWN = 60
"""Letters of a value that are printed."""


def print_profile(profile: Profile, arguments: Arguments) -> None:
    """Print a profile, and draw the time line of devices if that was requested."""
    arguments.result["kernels"] = profile_json(profile)
    arguments.show(f"\n{profile.table(limit=arguments.kernel_rows)}")
    if arguments.timeline is None:
        return
    try:
        drawn = profile.timeline()
    except ValueError as error:
        raise CommandError(f"--timeline: {error}") from error
    write_regular(arguments.timeline, drawn)
    arguments.result["files"] = [*arguments.result["files"], arguments.timeline]
    arguments.show(f"wrote {arguments.timeline}")


def run_program(program: Program, feeds: Mapping[str, np.ndarray], arguments: Arguments) -> None:
    """Run it with the arrays given and random ones for other tensors, print."""
    inputs = _inputs(program, feeds, arguments)
    outputs = program.run(inputs)
    arguments.show(*_lines("inputs", program.inputs, inputs))
    arguments.show(*_lines("outputs", program.outputs, outputs))
    written: list[str] = []
    if arguments.output_dir is not None:
        arrays = {name: value for name, value in outputs.items() if hasattr(value, "dtype") and value.dtype != object}
        written = list(map(str, write_arrays(arguments.output_dir, arrays)))
        arguments.show(*(f"wrote {path}" for path in written))
    seconds = []
    for _ in range(arguments.repeat):
        start = time.perf_counter()
        program.run(inputs)
        seconds.append(time.perf_counter() - start)
    arguments.show(f"latency: {1000 * sum(seconds) / len(seconds):.2f} ms (mean of {arguments.repeat})")
    arguments.result = {
        "model": arguments.model,
        "inputs": [{**_value_json(name, value), "random": name not in feeds} for name, value in inputs.items()],
        "outputs": [_value_json(name, value) for name, value in outputs.items()],
        "files": written,
        "latency_seconds": latency_json(seconds),
    }
    if arguments.profile:
        print_profile(program.profile(*inputs.values(), repeats=arguments.repeat), arguments)


def _value_json(name: str, value: Any) -> dict[str, object]:
    """Return the description of a value: an array, or another one as text."""
    return array_json(name, value) if hasattr(value, "dtype") else {"name": name, "text": str(value)}


def _inputs(program: Program, feeds: Mapping[str, np.ndarray], arguments: Arguments) -> dict[str, np.ndarray]:
    ports = {port.name: port for port in program.inputs}
    for name in (*feeds, *arguments.shapes):
        if name not in ports:
            raise CommandError(
                f"{arguments.model} has no input '{name}'; inputs: {', '.join(map(str, program.inputs))}"
            )
    rng, values = np.random.default_rng(arguments.seed), dict(feeds)
    for name, port in ports.items():
        if name in feeds:
            continue
        shape = arguments.shapes.get(name, port.kind.shape or ())
        if not port.kind.is_tensor or not all(isinstance(dim, int) for dim in shape):
            what = (
                "an array, --input NAME=FILE.npy, its shape, or the sizes of its dims, --dim NAME=N"
                if port.kind.is_tensor
                else "call it from Python"
            )
            raise CommandError(f"input '{name}' is {port.kind}, of which there are no random values: {what}")
        values[name] = random_input(TensorSpec(name, port.kind.name, tuple(shape)), {}, rng)
    return {name: values[name] for name in ports}


def _lines(title: str, ports: Sequence[Port], values: Mapping[str, object]) -> list[str]:
    rows = [(f"{title}:", "", "")]
    for port in ports:
        text = " ".join(str(values[port.name]).split())
        rows.append((f"  {port.name}", str(port.kind), text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."))
    return columns(rows)
