"""One compilation and run in a separate process, so that a crash is a result like any other."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any

from mirlo.driver.compile import compile as compile_model
from mirlo.passes.rules import INTRINSIC, LEGALIZE, SCHEDULE, Rule, observed_rules, refused_rules
from mirlo.runtime import processes
from mirlo.runtime.errors import MirloError, NoDevice, NotForThisMachine
from mirlo.runtime.records import dataclass
from mirlo.runtime.remote.model import RemoteModel
from mirlo.runtime.remote.wire import RunnerLost
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.tools.bisect.compare import ModelValue, Tolerance, difference
from mirlo.tools.bisect.submodel import Submodel
from mirlo.tools.cli.errors import explain
from mirlo.tools.explain.rules import short_position
from mirlo.tools.remote import on_board

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from mirlo.driver.options import GivenSchedule, RuleFunction
    from mirlo.tools.remote import BoardOptions

TIMEOUT = 300.0
"""Seconds after which a compilation or a run counts as hanging."""

PRELOADED = ("mirlo", "llvmlite")
"""Packages whose modules a trial leaves loaded for the next ones, which are forks: importing takes most of the time."""


@dataclass(frozen=True)
class TrialOptions:
    """The options for compiling and comparing submodels."""

    target: str = "llvm"
    threads: int = 1
    pipeline: str | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    timeout: float = TIMEOUT
    plugins: tuple[str, ...] = ()
    """The loaded plug-ins, which a replay must load again."""
    legalize: Mapping[str, RuleFunction] | None = None
    """Rules as for `mirlo.compile`; like the next two, no replay has them."""
    intrinsics: Mapping[str, RuleFunction] | None = None
    schedules: Mapping[str, GivenSchedule] | None = None
    """Schedules by kernel, where a part of the model has a kernel of that name."""
    board: BoardOptions | None = None
    """Where submodels run; None: on this machine."""
    without: frozenset[str] = frozenset()
    """Rules that must decline, as `Trial.rules` has them."""


@dataclass(frozen=True)
class Trial:
    """The result of a trial: how a submodel departs from the expected values, if it does."""

    departs: str | None
    """A description; None if all values are as expected."""
    failed: bool = False
    """Whether compilation failed or the process crashed, so that there are no values to compare."""
    values: dict[str, ModelValue] = field(default_factory=dict)
    step: str = ""
    """Where compilation failed: a pass, `import`, `emit`, `load` or `run`."""
    rules: tuple[str, ...] = ()
    """The rules that made the code, of every kind; the one in which the process died comes last."""
    steps: Mapping[str, str] = field(default_factory=dict)
    """By rule, the name of the pass that applied it."""


class CannotRun(MirloError):
    """This machine cannot run the target's code, so nothing can be compared."""

    error_code = "MIR0707"
    remedy = "Give sizes or inputs with which the model runs."


def try_submodel(
    part: Submodel, expected: Mapping[str, ModelValue], settings: TrialOptions, save_ir: str | None = None
) -> Trial:
    """Compile a submodel, call it twice, as a device may keep state of the first call, and compare."""
    context = processes.process_context()
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_compute, args=(sender, part, settings, save_ir), daemon=True)
    child.start()
    sender.close()
    heard = _Heard()
    ended = heard.listen(receiver, settings.timeout)
    if not ended:
        child.kill()
    child.join()
    if heard.lost is not None:
        raise RunnerLost(heard.lost)
    if heard.unable is not None:
        raise CannotRun(f"this machine cannot run what target '{settings.target}' makes: {heard.unable}")
    if heard.answer is None:
        problem = _death(child.exitcode) if ended else f"no result after {settings.timeout:.0f} s"
        return Trial(problem, failed=True, step=heard.step, rules=heard.all_rules())
    failure, values = heard.answer
    if failure is not None:
        return Trial(failure, failed=True, step=heard.step, rules=heard.all_rules())
    for call, computed in (("", values), (" in the second call", heard.again or values)):
        for name in part.outputs:
            text = difference(computed.get(name), expected[name], settings.tolerance)
            if text is not None:
                return Trial(f"'{name}'{call}: {text}", values=computed, rules=tuple(heard.rules), steps=heard.rules)
    return Trial(None, values=values, rules=tuple(heard.rules), steps=heard.rules)


@dataclass
class _Heard:
    """The messages of the child process, as far as they arrived."""

    step: str = ""
    rules: dict[str, str] = field(default_factory=dict)
    """The rules that accepted, each with the step in which it did first."""
    running: str = ""
    """The rule that has not returned."""
    answer: tuple[str | None, dict[str, ModelValue]] | None = None
    again: dict[str, ModelValue] = field(default_factory=dict)
    """The values of the second call."""
    unable: str | None = None
    """Why this machine cannot run the model."""
    lost: str | None = None
    """Why no board runs it any more."""

    def take(self, kind: str, content: Any) -> None:
        """Take one message."""
        if kind == "step":
            self.step, self.running = content, ""
        elif kind == "running":
            self.running = content
        elif kind == "accepted":
            self.rules.setdefault(content, self.step)
            self.running = ""
        elif kind == "modules":
            for name in content:
                importlib.import_module(name)
        elif kind == "unable":
            self.unable = content
        elif kind == "lost":
            self.lost = content
        elif kind == "again":
            self.again = content
        else:
            self.answer = content

    def listen(self, receiver: Connection, seconds: float) -> bool:
        """Read messages until the child ends; return whether it ended in time."""
        end = time.monotonic() + seconds
        while True:
            try:
                if not receiver.poll(max(0.0, end - time.monotonic())):
                    return False
                self.take(*receiver.recv())
            except EOFError:
                return True

    def all_rules(self) -> tuple[str, ...]:
        """Return the rules that accepted, and the one that was running in the end."""
        unfinished = (f"{self.running}, in which it ended",) if self.running else ()
        return (*self.rules, *unfinished)


@dataclass
class _RuleReport:
    """Sends the rules that run to the parent process."""

    sender: Connection

    def __call__(self, rule: Rule, arguments: tuple[object, ...], accepted: bool | None) -> None:
        text = "" if accepted is False else rule_text(rule, arguments)
        self.sender.send(("accepted" if accepted else "running", text))


def rule_text(rule: Rule, arguments: tuple[Any, ...]) -> str:
    """Return a rule with the operator it was used for: `relax.relu: by_mask (my.py:4)`."""
    subject = rule.subject
    if rule.kind == SCHEDULE.kind:
        subject = f"@{arguments[0].view.name}"
    elif rule.kind == INTRINSIC.kind and "." not in subject:
        subject = f"tir.{subject}"
    elif rule.kind != LEGALIZE.kind:
        subject = f"{rule.kind} {subject}"
    return f"{subject}: {rule.name} ({short_position(rule)})"


def _compute(sender: Connection, part: Submodel, settings: TrialOptions, save_ir: str | None) -> None:
    """Send the steps, the rules, and the values or the error from the child process."""
    # The error that is sent contains MLIR's diagnostics; failing trials are part of the search.
    processes.silence(2)

    def progress(step: str) -> None:
        sender.send(("step", step))

    try:
        refusal = refused_rules(lambda rule, arguments: rule_text(rule, arguments) in settings.without)
        with on_board(settings.board):
            with observed_rules(_RuleReport(sender)), refusal if settings.without else nullcontext():
                executable = compile_model(
                    part.model, settings.target, threads=settings.threads, pipeline=settings.pipeline, save_ir=save_ir,
                    cache=False, progress=progress, legalize=settings.legalize, intrinsics=settings.intrinsics,
                    schedules=settings.schedules,
                )  # fmt: skip
            progress("run")
            if isinstance(executable, UnloadedModel) and not isinstance(executable, RemoteModel):
                sender.send(("unable", executable.reason))
                return
            answer: tuple[str | None, dict[str, ModelValue]] = (None, executable.run(part.feeds))
            sender.send(("again", executable.run(part.feeds)))
    except RunnerLost as error:
        sender.send(("lost", str(error)))
        return
    except (NotForThisMachine, NoDevice) as error:
        sender.send(("unable", str(error)))
        return
    except Exception as error:
        answer = (explain(error), {})
    sender.send(("modules", [name for name in sys.modules if name.split(".")[0] in PRELOADED]))
    sender.send(("answer", answer))
    sender.close()


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"the process was killed by {processes.signal_name(-exitcode)}"
    return f"the process ended with exit code {exitcode}"
