"""The modes of `mirlo fuzz`, one row each. Modules are imported when a mode is run."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mirlo.tools.fuzz.verdict import SeedVerdict

SHARED = "llvm{thread_work=1}"
"""What graphs are compiled for if several threads compute them: they share each loop, however little work it is."""
MEMORY = 8 << 30
"""Address space, in bytes, of a process that reads hostile input."""


CRASHED = "crashed"
BUGS = ("wrong", "failed", "unsafe", CRASHED)


class Mode(NamedTuple):
    """A kind of random input and its test.

    The module has `judge(seed)`, which returns a `SeedVerdict`, and `STATES`, the meaning of each state. With
    `write(seed, folder)`, it writes the input of a seed. `require_host()`, where there is one, raises an error if this
    machine cannot run seeds. A named tuple, since `mirlo --help` reads the table: a dataclass would import `inspect`.
    """

    module: str
    doc: str
    used: str = "mutations"
    """What the verdicts count."""
    memory: int | None = MEMORY
    """Bytes of address space that a process may have; None for any number."""
    takes_target: bool = False
    """Whether `judge` takes `target`, `threads` and `opt_level`."""
    is_valid: bool = False
    """Whether its inputs are valid models, so that an error about one is a bug."""

    def load(self) -> ModuleType:
        """Return the module."""
        return importlib.import_module(self.module)

    def job(self, target: str | None, threads: int | None, opt_level: int | None) -> Callable[[int], SeedVerdict]:
        """Return the function of a seed."""
        module = self.load()
        judge: Callable[..., SeedVerdict] = module.judge
        if hasattr(module, "require_host"):
            module.require_host()
        if not self.takes_target:
            return partial(_without_faults, judge)
        threads = threads or 1
        level = {} if opt_level is None else {"opt_level": opt_level}
        target = target or ("llvm" if threads == 1 else SHARED)
        return partial(_without_faults, partial(judge, target=target, threads=threads, **level))

    @property
    def bugs(self) -> tuple[str, ...]:
        """Return the states that are bugs."""
        return (*BUGS, "refused") if self.is_valid else BUGS

    @property
    def states(self) -> Mapping[str, str]:
        """Return the meaning of each state."""
        result: Mapping[str, str] = self.load().STATES
        return result

    def write(self, seed: int, folder: Path) -> None:
        """Write the input of a seed to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.load().write(seed, folder)


def _without_faults(judge: Callable[[int], SeedVerdict], seed: int) -> SeedVerdict:
    """Return the verdict on a seed; a rule of Mirlo that raises is a bug, although the model is compiled without it."""
    from mirlo.passes.rules import RuleWarning
    from mirlo.tools.fuzz.verdict import FAILED, SeedVerdict

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RuleWarning)
        verdict = judge(seed)
    faults = [str(each.message) for each in warned if issubclass(each.category, RuleWarning)]
    if not faults or verdict.state == FAILED:
        return verdict
    return SeedVerdict(FAILED, faults[0], verdict.used)


MODES: dict[str, Mode] = {
    "graphs": Mode("mirlo.tools.fuzz.differential", "random graphs", "operators", None, True, True),
    "guards": Mode(
        "mirlo.tools.fuzz.guards",
        "random graphs whose arrays lie between inaccessible pages",
        "operators",
        MEMORY,
        True,
    ),
    "programs": Mode(
        "mirlo.tools.fuzz.programs", "random graphs in C programs of 64 and 32 bits, between such pages", "operators"
    ),
    "interrupts": Mode(
        "mirlo.tools.fuzz.interrupted", "interrupts at random times of compilations", "operators", None, True
    ),
    "files": Mode("mirlo.tools.fuzz.mutate", "corrupt model files"),
    "empty": Mode("mirlo.tools.fuzz.empty", "operators over empty axes", "operators", None, True),
    "headers": Mode("mirlo.tools.fuzz.headers", "compiled models with hostile headers", "files"),
    "sizes": Mode("mirlo.tools.fuzz.sizes", "operators with hostile sizes at run time", "operators", MEMORY // 2),
    "structure": Mode("mirlo.tools.fuzz.structure", "graphs with malformed or extreme structure", memory=MEMORY // 2),
    "names": Mode("mirlo.tools.fuzz.names", "models with hostile names", "commands"),
}
