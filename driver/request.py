"""The request of one compilation: what `mirlo.compile` was given, checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from mirlo.passes.graph.activations import ACTIVATIONS
from mirlo.passes.targets import CompileOptions
from mirlo.runtime.names import CACHE_DTYPES

if TYPE_CHECKING:
    import os

    from mirlo.dialects.bindings import ir
    from mirlo.driver.strategies import Measured
    from mirlo.driver.tune.database import Database
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.schedule.words.schedule import Schedule
    from mirlo.passes.schedule.words.trace import Trace
    from mirlo.runtime.cache import Cache
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.program import Program
    from mirlo.runtime.unloaded import UnloadedModel

Progress = Callable[[str], None]
"""Called with a name before each step of a compilation: `cache`, `import`, the passes, `emit`, `keep`, `load`."""
Strategies = Mapping[str, "str | Callable[[ir.OpView], str | None]"]
"""By operator, the name of the requested rule, or a function from the operator to that name."""
RuleFunction = Callable[..., object]
"""A rule that a caller gives: of an operator, a node or an intrinsic."""
GivenSchedule = Union["Schedule", "Trace", str, "os.PathLike[str]", Callable[["Schedule"], object]]
"""A schedule that a caller gives for a prim function."""
CompiledResult: TypeAlias = "Executable | Program | UnloadedModel"
"""What a compilation returns."""
CompileFunction = Callable[["CompileRequest"], CompiledResult]
"""Compiles a request: measured placement and strategies compile alternatives with it."""
PRECISIONS = ("bf16", "f16")
"""Element types that products may be computed from instead of f32."""
PLACEMENTS = ("priority", "estimated", "measured")
"""How several targets share a model."""


def ignore_progress(step: str) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class CompileRequest:
    """The arguments of one compilation; `mirlo.compile` documents them."""

    model: object
    target: str | Sequence[str] = "llvm"
    threads: int = 1
    shapes: Mapping[str, Sequence[int | str] | None] | None = None
    pipeline: Pipeline | str | None = None
    legalize: Mapping[str, Callable[..., object]] | None = None
    intrinsics: Mapping[str, Callable[..., object]] | None = None
    strategies: Strategies | Measured | str | None = None
    schedules: Mapping[str, GivenSchedule] | None = None
    opt_level: int = 2
    save_ir: str | Path | None = None
    params: ParameterStore | None = None
    cache: Cache | None = None
    jobs: int | None = None
    tuning: Database | None = None
    tune_seconds: float | None = None
    """The time of a search before the compilation; None for no search."""
    precision: str | None = None
    activations: str | None = None
    """How activations are represented in products with weights of a few bits; None for what the model says."""
    kv_cache_dtype: str | None = None
    """The type that f32 key/value caches are stored in; None for f32."""
    last_rows: str | None = None
    """The output [batch, rows, columns] of which calls choose how many last rows they need; None for no such output."""
    ring_caches: bool = False
    """Whether caches of attentions with a sliding window hold the rows of the window only."""
    placement: str | Mapping[str, Sequence[int]] = "priority"
    form: str = ""
    """The form of code that the emitter makes, for other tools; empty for what its loader takes."""
    kernel: str = ""
    """The kernel whose code is wanted, with a form of code; empty for all."""
    trust_file: bool = False
    """Whether a file of IR may name passes that reach outside of the module."""
    progress: Progress = field(default=ignore_progress, repr=False)

    def __post_init__(self) -> None:
        self.options("")  # checks the numbers
        if isinstance(self.placement, str) and self.placement not in PLACEMENTS:
            raise ValueError(f"placement: expected {', '.join(PLACEMENTS)}, found {self.placement!r}")
        if self.placement != "priority" and self.pipeline is not None:
            raise ValueError("placement: a pipeline of your own says so itself, with the pass partition")
        if self.schedules is not None:
            _check_schedules(self.schedules)
        if self.precision not in (None, *PRECISIONS):
            raise ValueError(f"precision: expected {', '.join(PRECISIONS)} or None, found {self.precision!r}")
        if self.activations not in (None, *ACTIVATIONS):
            raise ValueError(f"activations: expected {', '.join(ACTIVATIONS)} or None, found {self.activations!r}")
        if self.kv_cache_dtype not in (None, *CACHE_DTYPES):
            expected = f"{', '.join(CACHE_DTYPES)} or None"
            raise ValueError(f"kv_cache_dtype: expected {expected}, found {self.kv_cache_dtype!r}")
        if self.kv_cache_dtype is not None and self.pipeline is not None:
            raise ValueError("kv_cache_dtype: a pipeline of your own says so itself, with the pass narrow-caches")
        if self.last_rows is not None and self.pipeline is not None:
            raise ValueError("last_rows: a pipeline of your own says so itself, with the pass keep-last-rows")
        if self.precision is not None and self.pipeline is not None:
            raise ValueError("precision: a pipeline of your own says so itself, with the pass to-mixed-precision")

    def options(self, target: str, target_options: str = "") -> CompileOptions:
        """Return the options for the pipeline and the emitter of a target."""
        return CompileOptions(
            target,
            self.threads,
            self.opt_level,
            target_options,
            self.jobs,
            self.cache,
            form=self.form,
            kernel=self.kernel,
        )

    @property
    def single_target(self) -> str | None:
        """Return the target, or None for a list of several."""
        return self.target if isinstance(self.target, str) and "," not in self.target else None

    def key_options(self) -> dict[str, object]:
        """Return what changes the result, the model aside; an `object` stands for what no cache key can hold."""
        target = self.single_target or ""
        return {
            "target": "" if target == target.partition("{")[0].strip() else target,
            "threads": self.threads,
            "shapes": self.shapes,
            "pipeline": self.pipeline,
            "legalize": self.legalize,
            "intrinsics": self.intrinsics,
            "strategies": self.strategies,
            "schedules": self.schedules and object(),  # a saved schedule is in a file of its own
            "opt_level": self.opt_level,
            "save_ir": self.save_ir and object(),
            "params": self.params,
            "tuning": self.tuning.digest if self.tuning is not None else None,
            "precision": self.precision,
            "activations": self.activations,
            "kv_cache_dtype": self.kv_cache_dtype,
            "last_rows": self.last_rows,
            "ring_caches": self.ring_caches,
            "placement": self.placement,
            "trust_file": self.trust_file,
        }


def _check_schedules(found: object) -> None:
    """Reject what is no schedule by the name of a prim function; what the schedules say is read with the function."""
    if not isinstance(found, Mapping):
        raise ValueError(
            f"schedules: expected a dictionary of schedules by the name of a prim function, found {found!r}"
        )
    for name, given in found.items():
        if not isinstance(name, str):
            raise ValueError(f"schedules: expected the name of a prim function, found {name!r}")
        if given is None:
            raise ValueError(
                f"schedules: expected a Schedule, its trace, a file of one, or a function for '{name}', found None"
            )
