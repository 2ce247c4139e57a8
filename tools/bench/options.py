"""The options of a measurement, as `mirlo bench` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from mirlo.runtime.options import OptionFlag, integer, number, option, parse_integer, values_that
from mirlo.runtime.records import dataclass
from mirlo.tools.bench.engines import ENGINES

if TYPE_CHECKING:
    from mirlo.tools.remote import BoardOptions

MAX_GAP_MS = 60_000.0
"""The longest gap between calls."""
OWN_TYPES = "openvino"
"""The engine that computes in narrower types than f32 by default."""
OTHER_ENGINES = tuple(name for name in ENGINES if name != "mirlo")
"""The engines that models are measured beside."""


def parse_engines(text: str) -> tuple[str, ...]:
    """Parse names of engines with commas between them."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in OTHER_ENGINES:
            raise ValueError(f"there is no engine '{name}'; known: {', '.join(OTHER_ENGINES)}")
    return names


def parse_interpreter(text: str) -> tuple[str, str]:
    """Parse the name of an engine and the Python of its environment."""
    name, equals, path = text.partition("=")
    if not equals or name not in OTHER_ENGINES:
        raise ValueError(f"expected NAME=PATH with one of {', '.join(OTHER_ENGINES)}, found '{text}'")
    return name, path


def _parse_gaps(text: str) -> tuple[float, ...]:
    try:
        gaps = tuple(dict.fromkeys(float(word) for word in text.split(",")))
    except ValueError:
        gaps = ()
    if not gaps or not all(0 <= gap <= MAX_GAP_MS for gap in gaps):
        raise ValueError(f"expected milliseconds from 0 to {MAX_GAP_MS:g}, as 0,50; found '{text}'")
    return gaps


def _parse_counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(parse_integer(word.strip(), 1) for word in text.split(",")))


_SWITCH = values_that("True or False", lambda value: isinstance(value, bool))
_NUMBERS = values_that("a tuple of numbers", lambda value: isinstance(value, tuple))


@dataclass(frozen=True)
class MeasurementOptions:
    """The options of a measurement."""

    against: tuple[str, ...] = option(
        (), f"Other engines: {', '.join(OTHER_ENGINES)}.",
        OptionFlag("--against", "NAME,...", parse_engines, dest="engines"),
        kind=values_that("a tuple of names", lambda value: isinstance(value, tuple)),
    )  # fmt: skip
    threads: tuple[int, ...] = option(
        (1,), "Numbers of threads, each measured for itself (default: 1).",
        OptionFlag("--threads", "N,...", _parse_counts, dest="thread_counts"), kind=_NUMBERS,
    )  # fmt: skip
    gaps: tuple[float, ...] = option(
        (0.0,), "Milliseconds between calls, each measured for itself (default: 0, one call after the other).",
        OptionFlag("--gap", "MS,...", _parse_gaps), kind=_NUMBERS,
    )  # fmt: skip
    spinner: bool = option(
        False, "Run a process that occupies one core while models run.",
        OptionFlag("--spinner", form="constant"), kind=_SWITCH,
    )  # fmt: skip
    pressure: bool = option(
        False, "Run a process that streams through caches and memory while models run.",
        OptionFlag("--pressure", form="constant"), kind=_SWITCH,
    )  # fmt: skip
    cpu_time: bool = option(
        False, "Measure CPU time: for one thread, on a machine with other work.",
        OptionFlag("--cpu-time", form="constant"), kind=_SWITCH,
    )  # fmt: skip
    seconds: float = option(10.0, "Of runs, for each model and threads.", OptionFlag("--seconds", "S"), kind=number())
    pythons: Mapping[str, str] | None = option(
        None, "The Python in whose environment an engine is installed.",
        OptionFlag("--python", "NAME=PATH", parse_interpreter, form="pairs", dest="python", convert=dict),
        kind=values_that("paths by engine, or None", lambda value: value is None or isinstance(value, Mapping)),
    )  # fmt: skip
    seed: int = option(0, "Of the random inputs.", OptionFlag("--seed", "S"), kind=integer())
    min_rounds: int = 7
    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the inputs' dims that are dynamic in the compiled model."""
    kernels: bool = True
    code: bool = False
    """Whether the rows of kernels hold their code."""
    board: BoardOptions | None = None
    """Where models run; None: on this machine."""
    target: str | None = None
    """What Mirlo compiles for; None for its usual target."""
    compile_options: Mapping[str, object] = field(default_factory=dict)
    """Other options of `mirlo.compile`, as JSON."""
    precision: str = "f32"
    """The type of products: that of all engines, or the fastest of this machine, beside an engine's own types."""

    def in_fastest(self, fastest: str | None) -> MeasurementOptions | None:
        """Return the options for the fastest type beside the types that OpenVINO chooses.

        None where f32 is the fastest, or OpenVINO is not among the engines, or Mirlo compiles for another machine.
        """
        if fastest is None or OWN_TYPES not in self.against or self.target is not None or self.board is not None:
            return None
        chosen = {**self.compile_options, "precision": "fastest"}
        return replace(self, against=(OWN_TYPES,), compile_options=chosen, precision=fastest, kernels=False)
