"""The list of targets that compile a model, and the passes that place and compile parts of it.

targets = Targets.parse("onednn,c{flags=-O3},llvm")
pipeline.prepend(targets.steps())

The last target compiles what the others do not take. Those before it have code generators, tried in this order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.passes.options import quote, split_list
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.targets import HOST, CompileOptions, Target, TargetError, find_target

if TYPE_CHECKING:
    from mirlo.passes.byoc.codegen import CodeGenerator

PREPARING = "simplify,fold-constant,cse,remove-dead"
"""The passes before the partitioning."""


@dataclass(frozen=True)
class Chosen:
    """A target named by the user, with options of its code generator."""

    name: str
    options: str = ""

    @property
    def generator(self) -> CodeGenerator:
        from mirlo.passes.byoc.codegen import generator_of  # most models need none

        return generator_of(self.name, self.options)

    def __str__(self) -> str:
        return f"{self.name}{{{self.options}}}" if self.options else self.name


@dataclass(frozen=True)
class Targets:
    """The targets of a compilation: code generators first, then the host target that compiles the rest."""

    generators: tuple[Chosen, ...]
    host: Chosen | None
    """The host target; None if the last target compiles parts of models only."""

    @staticmethod
    def parse(given: str | Iterable[str]) -> Targets:
        """Parse names with options in braces: `"onednn,llvm"`, `["onnx{provider=cpu}", "llvm"]`."""
        pieces = split_list(given) if isinstance(given, str) else [part for text in given for part in split_list(text)]
        chosen = [_chosen(piece.strip()) for piece in pieces if piece.strip()]
        if not chosen:
            raise TargetError("no target is named: expected names such as 'llvm' or 'onednn,llvm'")
        names = [target.name for target in chosen]
        for name in names:
            if names.count(name) > 1:
                raise TargetError(f"target '{name}' is named twice in '{','.join(names)}'")
        last = find_target(names[-1])
        hosted = last.emit is not None or last.codegen is None
        generators = chosen[:-1] if hosted else chosen
        for target in generators:
            _ = target.generator  # report a wrong name or option before anything is compiled
        return Targets(tuple(generators), chosen[-1] if hosted else None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all targets in order."""
        return tuple(target.name for target in self._all)

    @property
    def host_target(self) -> Target:
        """Return the target that compiles what no code generator takes; raise an error if there is none."""
        if self.host is None:
            raise TargetError(
                f"target '{self.names[-1]}' compiles parts of models: name what compiles the rest, '{self},llvm'"
            )
        target = find_target(self.host.name)
        if target.pipeline is None or target.emit is None:
            raise TargetError(f"target '{target.name}' makes no code: it has no pipeline or no emitter")
        if self.host.options and not target.takes_options:
            raise TargetError(f"target '{target.name}' takes no options, found '{self.host}'")
        return target

    def pipeline(self, threads: int = 1, opt_level: int = 2) -> str:
        """Return all passes that compile a model for these targets, as text."""
        target = self.host_target
        assert self.host is not None
        assert target.pipeline is not None
        options = CompileOptions(target.name, threads, opt_level, self.host.options)
        return ",".join(filter(None, [self.steps(), *map(str, Pipeline(target.pipeline(options)))]))

    def or_host(self) -> Targets:
        """Return the list with the usual host, where the last target compiles parts of models only."""
        return self if self.host is not None else Targets(self.generators, Chosen(HOST))

    @property
    def _all(self) -> tuple[Chosen, ...]:
        return self.generators if self.host is None else (*self.generators, self.host)

    def steps(self, nodes: str = "") -> str:
        """Return the passes that place parts of a model and run the code generators; empty without code generators.

        `nodes` restricts the nodes of each target, as the option of `partition` does.
        """
        if not self.generators:
            return ""
        steps = [
            self.placing(nodes),
            *(_codegen(target) for target in self.generators if _has_codegen(target.generator)),
        ]
        if any(not target.generator.makes_artifacts for target in self.generators):
            steps.append("inline-external")
        return ",".join([*steps, "remove-dead"])

    def placing(self, nodes: str = "") -> str:
        """Return the passes up to the external modules in the layouts that their targets prefer."""
        # All layouts are settled before the first module is compiled, so that permutes between two targets cancel as
        # well.
        own = (step for target in self.generators for step in _target_passes(target))
        return ",".join([self.dividing(nodes), "outline-external", *own])

    def dividing(self, nodes: str = "", before: str = "") -> str:
        """Return the passes up to the outlined functions; `before` are passes to run first."""
        listed = ",".join(quote(str(target)) for target in self.generators)
        restricted = f" nodes={{{nodes}}}" if nodes else ""
        return ",".join(filter(None, [before, PREPARING, f"partition{{targets={{{listed}}}{restricted}}}"]))

    def __str__(self) -> str:
        return ",".join(map(str, self._all))


def _target_passes(target: Chosen) -> list[str]:
    """Return a target's passes on its external module, and those that hoist its layout permutes."""
    generator = target.generator
    pipeline = generator.pipeline or ("convert-layout,fold-constant,remove-dead" if generator.layouts else "")
    if not pipeline:
        return []
    steps = [f"run-on-external{{target={target.name} pipeline={quote(pipeline)}}}"]
    return [*steps, f"hoist-layouts{{target={target.name}}}"] if generator.layouts else steps


def _has_codegen(generator: CodeGenerator) -> bool:
    return generator.makes_artifacts or bool(generator.driver)


def _codegen(target: Chosen) -> str:
    options = f" options={quote(target.options)}" if target.options else ""
    return f"codegen-external{{target={target.name}{options}}}"


def _chosen(text: str) -> Chosen:
    name, brace, options = text.partition("{")
    if brace and not options.endswith("}"):
        raise TargetError(f"target '{text}': its options have no closing brace")
    find_target(name.strip())
    return Chosen(name.strip(), options[:-1].strip() if brace else "")
