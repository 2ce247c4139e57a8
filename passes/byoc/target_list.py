"""The list of targets that compile a model, and the passes that place and compile parts of it.

targets = Targets.parse("onednn,c{flags=-O3},llvm")
pipeline = targets.placed(pipeline)

The last target compiles what the others do not take. Those before it have code generators, tried in this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from mirlo.passes.options import quote, split_list
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.targets import HOST, CompileOptions, Target, TargetError, find_target, takes_options
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.byoc.codegen import CodeGenerator
    from mirlo.passes.byoc.tables import PatternEntry

PREPARING = "require-dims,simplify{combine=false},fold-constant,cse,remove-dead"
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

    @cached_property
    def entries(self) -> list[PatternEntry]:
        """Return its patterns."""
        from mirlo.passes.byoc.tables import entries_of

        return entries_of(self.name, self.options)

    def __str__(self) -> str:
        return f"{self.name}{{{self.options}}}" if self.options else self.name


@dataclass(frozen=True)
class Targets:
    """The targets of a compilation: code generators first, then the host target that compiles the rest."""

    generators: tuple[Chosen, ...]
    host: Chosen | None
    """The host target; None if the last target compiles parts of models only."""

    @staticmethod
    def parse(listed: str | Iterable[str]) -> Targets:
        """Parse names with options in braces: `"onednn,llvm"`, `["onnx{provider=cpu}", "llvm"]`."""
        pieces = (
            split_list(listed) if isinstance(listed, str) else [part for text in listed for part in split_list(text)]
        )
        chosen = [_chosen(piece.strip()) for piece in pieces if piece.strip()]
        if not chosen:
            raise TargetError("no target is named: expected names such as 'llvm' or 'onednn,llvm'")
        names = [target.name for target in chosen]
        for name in names:
            if names.count(name) > 1:
                raise TargetError(f"target '{name}' is named twice in '{','.join(names)}'")
        last = find_target(names[-1])
        hosted = last.has("emit") or last.codegen is None
        generators = chosen[:-1] if hosted else chosen
        for target in generators:
            _ = target.generator  # report a wrong name or option before anything is compiled
        return Targets(tuple(generators), chosen[-1] if hosted else None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all targets in order."""
        return tuple(target.name for target in self._all)

    def error_of(self, names: Iterable[str]) -> float:
        """Return the largest error that code generators declare, of those with these names."""
        named = set(names)
        return max((each.generator.error for each in self.generators if each.name in named), default=0.0)

    @property
    def host_target(self) -> Target:
        """Return the target that compiles what no code generator takes; raise an error if there is none."""
        if self.host is None:
            raise TargetError(
                f"target '{self.names[-1]}' compiles parts of models: name what compiles the rest, '{self},llvm'"
            )
        target = find_target(self.host.name)
        if not target.compiles_models:
            raise TargetError(f"target '{target.name}' does not generate code: it has no pipeline or no emitter")
        if self.host.options and not takes_options(target.name):
            raise TargetError(f"target '{target.name}' takes no options, found '{self.host}'")
        return target

    def pipeline(self, threads: int = 1, opt_level: int = 2) -> str:
        """Return all passes that compile a model for these targets, as text."""
        target = self.host_target
        assert self.host is not None
        options = CompileOptions(target.name, threads, opt_level, self.host.options)
        return ",".join(map(str, self.placed(Pipeline(target.pipeline(options)))))

    def or_host(self) -> Targets:
        """Return the list with the usual host added if the last target compiles parts of models only."""
        return self if self.host is not None else Targets(self.generators, Chosen(HOST))

    @property
    def _all(self) -> tuple[Chosen, ...]:
        return self.generators if self.host is None else (*self.generators, self.host)

    def placed(self, host: Pipeline, nodes: str | None = "") -> Pipeline:
        """Return the host's pipeline with the passes that place parts of a model and run the code generators.

        Operators are placed first, prim functions after legalization, or what else the code generator names (`after`).
        `nodes` restricts the operators of each target, as the option of `partition` does; for None none is placed.
        """
        if nodes is not None:
            host.prepend(self.steps(nodes))
        for after in dict.fromkeys(target.generator.after for target in self.of_loops):
            targets = [target for target in self.of_loops if target.generator.after == after]
            if after not in host:
                names = "', '".join(target.name for target in targets)
                raise TargetError(
                    f"target '{names}' matches prim functions after the pass '{after}', which the pipeline of "
                    f"'{self.host}' does not have"
                )
            host.insert_after(after, ",".join(_compiling(targets, [_partition(targets), *_own_passes(targets)])), 0)
        return host

    @cached_property
    def of_operators(self) -> tuple[Chosen, ...]:
        """Return the code generators that have patterns of operators."""
        return tuple(t for t in self.generators if any(not entry.is_of_loops for entry in t.entries))

    @cached_property
    def of_loops(self) -> tuple[Chosen, ...]:
        """Return the code generators that have patterns of prim functions."""
        return tuple(t for t in self.generators if any(entry.is_of_loops for entry in t.entries))

    def steps(self, nodes: str = "") -> str:
        """Return the passes that place operators and run their code generators; empty without patterns of operators.

        `nodes` restricts the nodes of each target, as the option of `partition` does.
        """
        if not self.of_operators:
            return ""
        return ",".join(_compiling(self.of_operators, [self.placing(nodes)]))

    def placing(self, nodes: str = "") -> str:
        """Return the passes up to the external modules in the layouts that their targets prefer."""
        # All layouts are settled before the first module is compiled, so that permutes between two targets cancel as
        # well.
        return ",".join([self.dividing(nodes), *_own_passes(self.of_operators)])

    def placing_for_good(self, nodes: str = "") -> str:
        """Return the passes that place operators, with the code generators that decide as they compile."""
        deciding = [_codegen(target, times=True) for target in self.of_operators if target.generator.compiled_to_place]
        return ",".join([self.placing(nodes), *deciding])

    def placing_loops(self) -> str:
        """Return the host's passes up to the prim functions, and those that place them."""
        target = self.or_host().host_target
        steps = list(Pipeline(target.pipeline(CompileOptions(target.name))))
        last = max(steps.index(next(s for s in steps if s.name == t.generator.after)) for t in self.of_loops)
        return ",".join([*map(str, steps[: last + 1]), _partition(self.of_loops), *_own_passes(self.of_loops)])

    def dividing(self, nodes: str = "", before: str = "") -> str:
        """Return the passes up to the outlined functions; `before` are passes to run first."""
        partition = _partition(self.of_operators, nodes) if self.of_operators else ""
        return ",".join(filter(None, [before, PREPARING, partition]))

    def __str__(self) -> str:
        return ",".join(map(str, self._all))


def _partition(targets: Sequence[Chosen], nodes: str = "") -> str:
    listed = ",".join(quote(str(target)) for target in targets)
    restricted = f" nodes={{{nodes}}}" if nodes else ""
    return f"partition{{targets={{{listed}}}{restricted}}}"


def _own_passes(targets: Sequence[Chosen]) -> list[str]:
    return ["outline-external", *(step for target in targets for step in _target_passes(target))]


def _compiling(targets: Sequence[Chosen], placing: Sequence[str]) -> list[str]:
    """Return the passes that place parts of a model and run the code generators on them."""
    steps = [*placing, *(_codegen(target) for target in targets if _has_codegen(target.generator))]
    if any(not target.generator.makes_artifacts for target in targets):
        steps.append("inline-external")
    return [*steps, "remove-dead"]


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


def _codegen(target: Chosen, times: bool = False) -> str:
    options = f" options={quote(target.options)}" if target.options else ""
    return f"codegen-external{{target={target.name}{options}{' times' if times else ''}}}"


def _chosen(text: str) -> Chosen:
    name, brace, options = text.partition("{")
    if brace and not options.endswith("}"):
        raise TargetError(f"target '{text}': its options have no closing brace")
    find_target(name.strip())
    return Chosen(name.strip(), options[:-1].strip() if brace else "")
