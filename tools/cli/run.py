"""`mirlo run`: runs a model, prints its outputs, its latency, and the time of its kernels."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from mirlo.driver.loaded import require_loaded
from mirlo.runtime.errors import MirloError
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.compile import compile_model
from mirlo.tools.cli.compile_report import executable_regions
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, read_array, require_file, write_arrays
from mirlo.tools.cli.options import given_flags
from mirlo.tools.cli.progress import array_json, latency_json
from mirlo.tools.cli.remote import board_options
from mirlo.tools.cli.run_sizes import sizes_of_shapes, with_small_sizes
from mirlo.tools.tables import columns, number

if TYPE_CHECKING:
    import numpy as np

    from mirlo.driver.loaded import CallableModel
    from mirlo.runtime.artifact import TensorSpec
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.remote.model import RemoteModel

    SingleModel: TypeAlias = Executable | RemoteModel

SHOWN_VALUES = 4
_OF_RUNS = ("shapes", "dims", "cache", "jobs")
"""Options that runs of compiled models take: sizes of inputs, and where nothing is compiled."""


def execute(arguments: Arguments) -> None:
    """Load or compile the model, run it, print."""
    require_file(arguments.model)
    # Read first: a missing file should not cost a compilation.
    arrays = {name: read_array(path, name) for name, path in arguments.input}
    from mirlo.tools.remote import on_board

    with on_board(board_options(arguments)):
        _run(arguments, arrays)


def _run(arguments: Arguments, arrays: Mapping[str, np.ndarray]) -> None:
    from mirlo.runtime.program import Program

    executable = _executable(arguments)

    arguments.show(*executable_regions(executable))
    sys.stdout.flush()
    if isinstance(executable, Program):
        from mirlo.tools.cli.run_program import run_program

        run_program(executable, arrays, arguments)
        return
    inputs = _inputs(executable, arrays, arguments)
    outputs = executable.run(inputs)
    named = {name for name, _ in arguments.input}
    arguments.show(*_tensor_lines("inputs", executable.inputs, inputs, named, arguments.seed))
    arguments.show(*_tensor_lines("outputs", executable.outputs, outputs))
    written = [] if arguments.output_dir is None else list(map(str, write_arrays(arguments.output_dir, outputs)))
    arguments.show(*(f"wrote {path}" for path in written))
    seconds, place = _seconds(executable, inputs, arguments.repeat)
    arguments.show(_latency(seconds, place))
    arguments.result = {
        "model": arguments.model,
        "inputs": [{**array_json(name, array), "random": name not in named} for name, array in inputs.items()],
        "outputs": [array_json(name, array) for name, array in outputs.items()],
        "files": written,
        "latency_seconds": latency_json(seconds),
    }
    if arguments.profile:
        from mirlo.tools.cli.run_program import print_profile

        print_profile(executable.profile(*inputs.values(), repeats=arguments.repeat), arguments)


def _executable(arguments: Arguments) -> CallableModel:
    if is_compiled(arguments.model):
        _refuse_compilation(arguments)
        start = time.perf_counter()
        executable = _loaded(arguments)
        arguments.show(f"{arguments.model}: loaded in {time.perf_counter() - start:.2f} s; {executable.memory}")
        return executable

    executable, progress = compile_model(arguments)
    arguments.show(f"{arguments.model}: {progress.how} in {progress.summary()}; {executable.memory}")
    return executable


def _loaded(arguments: Arguments) -> CallableModel:
    """Load a compiled model, on a board where one is named."""
    if arguments.remote is None:
        from mirlo.runtime.load import load

        return load(arguments.model)
    from mirlo.driver.build import load_compiled
    from mirlo.runtime import artifact as artifacts

    return require_loaded(load_compiled(*artifacts.load(arguments.model)), "it runs")


def _refuse_compilation(arguments: Arguments) -> None:
    for name, (flag, _) in given_flags(arguments).items():
        if name not in _OF_RUNS:
            raise CompiledAlready(f"{arguments.model} is compiled already: {flag} is for 'mirlo compile'")


def _inputs(executable: SingleModel, arrays: Mapping[str, np.ndarray], arguments: Arguments) -> dict[str, np.ndarray]:
    """Return the given arrays, and random ones for other inputs."""
    from mirlo.runtime.inputs import bind, convert

    specs = {spec.name: spec for spec in executable.inputs}
    dims: dict[str, int] = {}
    for name, array in arrays.items():
        if name not in specs:
            # Tells which inputs there are, and the nearest.
            bind(executable.inputs, (), arrays)
        convert(specs[name], array, dims)
    if is_compiled(arguments.model):
        dims.update(sizes_of_shapes(executable.inputs, dict(arguments.shape), arguments.model))
        dims.update(_sizes_of_dims(executable, arguments))
    else:
        dims.update(sizes_of_shapes(executable.inputs, arguments.shapes, arguments.model))
    problem: MirloError | None = None
    unknown: list[str] = []
    for sizes, unknown in with_small_sizes(executable.inputs, dims):
        inputs = {**executable.random_inputs(arguments.seed, sizes), **arrays}
        if unknown:
            try:
                executable.run(inputs)
            except MirloError as error:  # such as an image smaller than a window
                problem = error
                continue
            taken = ", ".join(f"{name}={sizes[name]}" for name in unknown if name in sizes)
            flags = " ".join(f"--dim {name}=N" for name in unknown)
            arguments.show(f"sizes of dynamic dims: {taken}, which were not given; others: {flags}")
        return inputs
    flags = " ".join(f"--dim {name}=N" for name in unknown)
    raise CommandError(f"no small sizes fit the model ({problem}): give the sizes of its dynamic dims, {flags}")


def _sizes_of_dims(executable: SingleModel, arguments: Arguments) -> dict[str, int]:
    """Return the sizes of dims that the command line gives for a compiled model."""
    known = {dim for spec in executable.inputs for dim in spec.shape if isinstance(dim, str)}
    for name, _ in arguments.dim:
        if name not in known:
            has = f"dynamic dims: {', '.join(sorted(known))}" if known else "the model has no dynamic dims"
            raise CommandError(f"{arguments.model}: it has no dim '{name}', for which a size is given; {has}")
    return dict(arguments.dim)


def _tensor_lines(
    title: str,
    specs: tuple[TensorSpec, ...],
    arrays: Mapping[str, np.ndarray],
    named: set[str] | None = None,
    seed: int = 0,
) -> list[str]:
    from mirlo.runtime.artifact import describe

    rows = [(f"{title}:", "", "mean", "min", "max", "first values")]
    for spec in specs:
        array = arrays[spec.name]
        source = f"  (random, seed {seed})" if named is not None and spec.name not in named else ""
        kind = describe(spec.dtype, array.shape)
        rows.append((f"  {spec.name}", kind, *_statistics(array), _first_values(array) + source))
    return columns(rows, numbers={2, 3, 4})


def _statistics(array: np.ndarray) -> tuple[str, str, str]:
    """Mean, least and largest of the finite values."""
    import numpy as np

    values = array.astype(np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return "-", "-", "-"
    return number(values.mean()), number(values.min()), number(values.max())


def _first_values(array: np.ndarray) -> str:
    import numpy as np

    values = array.reshape(-1).astype(np.float64)
    text = ", ".join(number(value) for value in values[:SHOWN_VALUES]) + (", ..." if array.size > SHOWN_VALUES else "")
    not_numbers, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    odd = [f"{count} {what}" for count, what in ((not_numbers, "NaN"), (infinite, "infinite")) if count]
    return f"{text}  ({', '.join(odd)})" if odd else text


def _seconds(executable: SingleModel, inputs: Mapping[str, np.ndarray], repeat: int) -> tuple[list[float], str]:
    """Time runs after the one that computed the outputs; return the times, and the clock that measured them."""
    from mirlo.runtime.executable import Executable

    if not isinstance(executable, Executable):
        return executable.seconds(inputs, repeat), f" by the clock of {executable.address}"
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        executable.run(inputs)
        seconds.append(time.perf_counter() - start)
    return seconds, ""


def _latency(seconds: Sequence[float], place: str) -> str:
    runs = "1 run" if len(seconds) == 1 else f"{len(seconds)} runs"
    median, least, most = (_milliseconds(value) for value in (statistics.median(seconds), min(seconds), max(seconds)))
    return f"latency: {median} ms{place} (median of {runs}, {least} to {most})"


def _milliseconds(seconds: float) -> str:
    """Format a time; that of a small model has more digits."""
    return f"{1e3 * seconds:.2f}" if seconds >= 1e-4 else f"{1e3 * seconds:.4f}"
