"""Whether code generators compute what their patterns take: cases drawn from each pattern, taken, and compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.tables import PatternEntry
from mirlo.passes.byoc.target_list import Chosen, Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.tools.conformance.case import Operand
from mirlo.tools.conformance.derivations import GraphLeaf, GraphOperation, NoGraph, PatternGraph, derivations
from mirlo.tools.conformance.programs import (
    CompiledPrograms,
    TestProgram,
    compile_programs,
    constant,
    module_of,
    operator_class,
    taken_patterns,
)
from mirlo.tools.conformance.typed_graphs import Lattice, TypedGraph, typed_graph, with_dynamic_dims
from mirlo.tools.conformance.values import Arrays, again, draws, expectations

BATCH = 40
"""Graphs that are matched in one module."""
MAX_TRIED = 480
"""Graphs of a pattern that are matched before it counts as never taken."""
ENOUGH = 16
"""Cases of a pattern that are computed."""
IMAGES = (7, 8, 9)
"""Sizes of images in cases."""
LATTICES = (
    Lattice(), Lattice(8), Lattice(4), Lattice(4, 1), Lattice(16, 0, IMAGES), Lattice(16, 3, IMAGES),
    Lattice(32, 0, IMAGES), Lattice(64, 0, IMAGES), Lattice(128, 0, IMAGES),
)  # fmt: skip
KINDS = ("f32", "i8", "u8", "f16", "bf16", "f64", "i32", "i64", "bool")
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33)
"""Sizes of a dynamic dim, each in one call of the same executable."""
MAX_DYNAMIC = 4
MAX_REASONS = 3
ROUNDS = 2
"""Draws of each graph, element type and lattice."""


@dataclass(frozen=True)
class PatternCheck:
    """What became of the cases of a pattern."""

    name: str
    """`target.pattern`."""
    kinds: dict[str, list[str]] = field(default_factory=dict)
    """What is wrong, by element type of the first argument; an empty text for a case that is right."""
    failures: dict[str, list[str]] = field(default_factory=dict)
    """Errors of the code generator, likewise."""
    untaken: str = ""
    """Why no case was compared."""


@dataclass(frozen=True)
class PatternCase:
    """A graph with elements: what it is called, and whether a dim of it is dynamic."""

    name: str
    typed: TypedGraph
    arrays: Arrays
    axes: dict[GraphLeaf, dict[int, str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.typed.types[self.typed.arguments[0]].dtype.name

    @property
    def program(self) -> TestProgram:
        typed, arguments = self.typed, self.typed.arguments

        def emit(values: list[ir.Value]) -> list[ir.Value]:
            known = dict(zip(arguments, values, strict=True))
            known |= {leaf: constant(array) for leaf, array in self.arrays.items() if leaf not in known}
            return _emit(typed, known)

        kinds = [_renamed(typed.types[leaf], self.name) for leaf in arguments]
        return TestProgram(self.name, self.given(self.arrays), emit, kinds)

    def given(self, arrays: Arrays) -> list[np.ndarray]:
        return [arrays[leaf] for leaf in self.typed.arguments]


def _renamed(kind: TensorType, name: str) -> TensorType:
    """Return a type whose dynamic dims are the program's own."""
    return TensorType.of([dim if isinstance(dim, int) else f"{dim}_{_symbol(name)}" for dim in kind.shape], kind.dtype)


def _symbol(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _emit(typed: TypedGraph, known: dict[GraphLeaf, ir.Value]) -> list[ir.Value]:
    made: dict[GraphOperation, tuple[ir.Value, ...]] = {}

    def emitted(value: object) -> ir.Value:
        return known[value] if isinstance(value, GraphLeaf) else made[value.operation][value.number]  # type: ignore[attr-defined]

    for operation in typed.graph.operations:
        given = [
            [emitted(v) for v in o] if isinstance(o, list) else None if o is None else emitted(o)
            for o in operation.operands.values()
        ]
        result = operator_class(operation.name.removeprefix("relax.")).make(*given, **typed.attributes[operation])
        made[operation] = result if isinstance(result, tuple) else (result,)
    return [made[value.operation][value.number] for value in typed.graph.outputs]


def check_patterns(target: str, only: Sequence[str] | None = None) -> Iterator[PatternCheck]:
    """Check each pattern of each code generator of the target list; those with one of the operators in `only`."""
    targets = Targets.parse(target).or_host()
    for chosen in targets.generators:
        beside = f"{chosen},{targets.host}"
        entries: dict[str, list[PatternEntry]] = {}
        for entry in chosen.entries:
            if not entry.is_of_loops and (only is None or entry.operators & set(only)):
                entries.setdefault(entry.full_name, []).append(entry)
        for name, same in entries.items():
            yield PatternSearch(name, same, chosen, beside, str(targets.host)).check()


def loop_patterns(target: str) -> list[str]:
    """Return the patterns of prim functions of the target list, `target.pattern` each."""
    generators = Targets.parse(target).generators
    return list(dict.fromkeys(e.full_name for chosen in generators for e in chosen.entries if e.is_of_loops))


@dataclass
class PatternSearch:
    """The search for cases that one pattern takes, and their comparison."""

    name: str
    entries: Sequence[PatternEntry]
    chosen: Chosen
    target: str
    host: str
    tried: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, None] = field(default_factory=dict)
    """The element types of graphs that were taken."""
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def check(self) -> PatternCheck:
        """Return what became of the cases."""
        graphs, why = self._graphs()
        taken = self._taken(graphs)
        cases = [case for typed in taken for case in self._cases(typed)]
        if not cases:
            return PatternCheck(self.name, untaken=why or self._why())
        result = PatternCheck(self.name)
        self._compare(self._varied(cases), result)
        self._compare_dynamic(taken, result)
        if not result.kinds and not result.failures:
            return replace(result, untaken=f"{len(cases)} cases were taken, and no result could be compared")
        return result

    def _graphs(self) -> tuple[list[PatternGraph], str]:
        graphs: list[PatternGraph] = []
        why = ""
        for entry in self.entries:
            try:
                graphs += derivations(entry.pattern)
            except NoGraph as reason:
                why = str(reason)
        return graphs, why

    def _why(self) -> str:
        alike: dict[str, Counter[str]] = {}
        for reason, count in self.reasons.items():
            alike.setdefault(reason.partition(" (")[0], Counter())[reason] += count
        groups = sorted(alike.values(), key=lambda group: -sum(group.values()))[:MAX_REASONS]
        last = "; ".join(group.most_common(1)[0][0] for group in groups)
        return f"no case was found; tried {self.tried}" + (f"; the last declines: {last}" if last else "")

    # ------------------------------------------------------------------------------------------------------ search

    def _taken(self, graphs: Sequence[PatternGraph]) -> list[TypedGraph]:
        """Return graphs that the pattern takes, as different as possible."""
        found: dict[TypedGraph, set[object]] = {}
        pending: dict[TypedGraph, set[object]] = {}
        seen: set[str] = set()
        for kind, lattice, graph in self._order(graphs):
            if self.tried >= MAX_TRIED or len(found) >= 4 * ENOUGH:
                break
            typed = typed_graph(graph, kind, lattice, self.random)
            if typed is None or typed.text in seen:
                continue
            seen.add(typed.text)
            pending[typed] = {str(graph), kind, lattice, *typed.changes}
            if len(pending) == BATCH:
                found |= self._match(pending)
        found |= self._match(pending)
        return _most_different(found)

    def _order(self, graphs: Sequence[PatternGraph]) -> Iterator[tuple[str, Lattice, PatternGraph]]:
        """Yield what to draw: the usual sizes of all types first, then multiples of what declines name."""
        for part in range(3):
            lattices: tuple[Lattice, ...] = LATTICES[:2] if part == 0 else LATTICES[2:]
            if part == 1:
                pairs = re.findall(r"=(\d+)\b", " ".join(self.reasons))
                named = {int(number) for number in pairs if 1 < int(number) <= 256} - {k.tile for k in LATTICES}
                lattices = tuple(Lattice(number, 0, IMAGES) for number in sorted(named))
            for _ in range(ROUNDS):
                for kind in tuple(self.kinds or KINDS):
                    for lattice in lattices:
                        for graph in graphs:
                            yield kind, lattice, graph

    def _match(self, pending: dict[TypedGraph, set[object]]) -> dict[TypedGraph, set[object]]:
        """Match the graphs that wait, and return those that are taken."""
        taken = self._matched(list(pending))
        found = {typed: own for (typed, own), is_taken in zip(pending.items(), taken, strict=True) if is_taken}
        self.kinds.update(dict.fromkeys(kind for own in found.values() for kind in KINDS if kind in own))
        self.tried += len(pending)
        pending.clear()
        return found

    def _matched(self, graphs: Sequence[TypedGraph]) -> list[bool]:
        """Return which graphs the pattern takes, after the passes that come before."""
        if not graphs:
            return []
        cases = [PatternCase(f"case {i}", typed, _placeholders(typed, self.random)) for i, typed in enumerate(graphs)]
        targets = Targets.parse(self.target)
        try:
            with make_context(), ir.Location.unknown():
                module, _ = module_of([case.program for case in cases])
                session = Session(report=lambda *_: None)
                Pipeline(targets.dividing()).run(module, session)
        except (MirloError, ir.MLIRError) as error:
            if len(graphs) == 1:
                self.reasons[str(error).splitlines()[0]] += 1
                return [False]
            return [taken for typed in graphs for taken in self._matched([typed])]
        names = taken_patterns(session.notes)
        self._note_reasons(session)
        return [self.name in names.get(case.name, ()) for case in cases]

    def _note_reasons(self, session: Session) -> None:
        target, _, pattern = self.name.partition(".")
        for placement in session.notes:
            if isinstance(placement, Placement):
                failed = (
                    a for a in placement.attempts if not a.accepted and (a.target, a.pattern) == (target, pattern)
                )
                self.reasons.update(attempt.reason for attempt in failed)
                self.reasons.update(region.reason for region in placement.regions if region.reason)

    # -------------------------------------------------------------------------------------------------- comparison

    def _cases(self, typed: TypedGraph) -> Iterator[PatternCase]:
        try:
            for arrays in draws(typed, self.random, self._by_host):
                yield PatternCase("", typed, arrays)
        except (MirloError, ir.MLIRError, ValueError) as error:
            self.reasons[f"no reference: {str(error).splitlines()[0]}"] += 1

    def _varied(self, cases: Sequence[PatternCase]) -> list[PatternCase]:
        """Return the cases under names of their own, each with constants once more with others."""
        both = [
            replace(case, arrays=arrays)
            for case in cases
            for arrays in (case.arrays, again(case.typed, case.arrays, self.random, constants=True))
        ]
        has_constants = {case.typed for case in cases if len(case.typed.arguments) < len(case.typed.types)}
        kept = [case for i, case in enumerate(both) if i % 2 == 0 or case.typed in has_constants]
        return [replace(case, name=f"case {i}") for i, case in enumerate(kept)]

    def _by_host(
        self, operation: GraphOperation, operands: Sequence[Operand], attributes: dict[str, object]
    ) -> tuple[np.ndarray, ...]:
        """Compute an operation that has no reference in numpy where nothing is given to the code generator."""
        flat = [array for o in operands for array in (o if isinstance(o, list) else [o]) if array is not None]

        def emit(values: list[ir.Value]) -> list[ir.Value]:
            rest = iter(values)
            given = [
                [next(rest) for _ in o] if isinstance(o, list) else None if o is None else next(rest) for o in operands
            ]
            result = operator_class(operation.name.removeprefix("relax.")).make(*given, **attributes)
            return list(result) if isinstance(result, tuple) else [result]

        return compile_programs([TestProgram("reference", flat, emit)], self.host).call([flat])[0]

    def _compare(self, cases: Sequence[PatternCase], result: PatternCheck) -> None:
        """Compute the cases in one module, twice with other arguments, and compare."""
        try:
            compiled = compile_programs([case.program for case in cases], self.target)
            rounds = []
            for number in range(2):
                arrays = [c.arrays if not number else again(c.typed, c.arrays, self.random) for c in cases]
                given = [case.given(a) for case, a in zip(cases, arrays, strict=True)]
                rounds.append((arrays, [tuple(map(np.copy, made)) for made in compiled.call(given)]))
        except Exception as error:  # a code generator and its loader may raise anything
            if len(cases) > 1:
                for case in cases:
                    self._compare([case], result)
            elif self._host_computes(cases[0]):
                result.failures.setdefault(cases[0].kind, []).append(_described(error, cases[0]))
            return
        for arrays, results in rounds:
            for case, own, made in zip(cases, arrays, results, strict=True):
                if self.name in compiled.patterns_of(case.program):
                    self._judge(replace(case, arrays=own), made, result)

    def _judge(self, case: PatternCase, made: Sequence[np.ndarray], result: PatternCheck) -> None:
        try:
            wrong = _wrong(case, made, self._by_host)
            if wrong and self._host_differs(case):
                return  # the reference is not to be trusted
        except (MirloError, ir.MLIRError, ValueError):
            return
        result.kinds.setdefault(case.kind, []).append(f"{wrong}; {case.typed.text}" if wrong else "")

    def _host_computes(self, case: PatternCase) -> bool:
        try:
            compile_programs([case.program], self.host).call([case.given(case.arrays)])
        except (MirloError, ir.MLIRError):
            return False
        return True

    def _host_differs(self, case: PatternCase) -> bool:
        """Return whether the host alone is not as the reference says either."""
        made = compile_programs([case.program], self.host).call([case.given(case.arrays)])[0]
        return _wrong(case, made, self._by_host) is not None

    # ----------------------------------------------------------------------------------------------- dynamic dims

    def _compare_dynamic(self, taken: Sequence[TypedGraph], result: PatternCheck) -> None:
        """Compute some of the graphs with a dynamic dim, at one size after the other."""
        found: list[PatternCase] = []
        for typed in dict.fromkeys(sorted(taken, key=lambda typed: len(typed.types), reverse=True)):
            if len(found) >= 2 * MAX_DYNAMIC:
                break
            for dynamic, axes in with_dynamic_dims(typed):
                case = next(self._cases(typed), None)
                if case is not None:
                    found.append(PatternCase(f"dynamic {len(found)}", dynamic, case.arrays, axes))
        is_taken = self._matched_dynamic(found)
        for case in [case for case, own in zip(found, is_taken, strict=True) if own][:MAX_DYNAMIC]:
            self._compare_sizes(case, result)

    def _matched_dynamic(self, cases: Sequence[PatternCase]) -> list[bool]:
        return [self._matched([case.typed])[0] for case in cases]

    def _compare_sizes(self, case: PatternCase, result: PatternCheck) -> None:
        compiled: CompiledPrograms | None = None
        for size in SIZES:
            sized = self._sized(case, size)
            if sized is None:
                continue
            try:
                compiled = compiled or compile_programs([case.program], self.target)
                made = tuple(map(np.copy, compiled.call([sized.given(sized.arrays)])[0]))
            except Exception as error:  # a code generator and its loader may raise anything
                if self._host_computes(sized):
                    result.failures.setdefault(case.kind, []).append(_described(error, sized))
                return
            self._judge(sized, made, result)

    def _sized(self, case: PatternCase, size: int) -> PatternCase | None:
        """Return the case at one size of its dynamic dim, in types that are static."""
        types = dict(case.typed.types)
        for leaf, axes in case.axes.items():
            types[leaf] = types[leaf].with_shape([size if i in axes else d for i, d in enumerate(types[leaf].shape)])
        typed = case.typed.with_types(types)
        if typed is None:
            return None
        arrays = dict(case.arrays)
        for leaf in case.axes:
            low, high = arrays[leaf].min(), arrays[leaf].max()
            numbers = self.random.uniform(low, high, types[leaf].static_shape)
            is_float = typed.ranges[leaf].dtype.is_float
            arrays[leaf] = (numbers if is_float else np.rint(numbers)).astype(arrays[leaf].dtype)
        return PatternCase(case.name, typed, arrays)


def _most_different(found: dict[TypedGraph, set[object]]) -> list[TypedGraph]:
    """Return graphs that between them have as many features as possible."""
    left, chosen, covered = dict(found), list[TypedGraph](), set[object]()
    while left and len(chosen) < ENOUGH:
        best = max(left, key=lambda typed: len(left[typed] - covered))
        covered |= left.pop(best)
        chosen.append(best)
    return chosen


def _wrong(case: PatternCase, made: Sequence[np.ndarray], fallback: object) -> str | None:
    with np.errstate(all="ignore"):
        wanted = expectations(case.typed, case.arrays, fallback)  # type: ignore[arg-type]
        wrongs = [expected.error_in(got) for expected, got in zip(wanted, made, strict=True)]
    return next(filter(None, wrongs), None)


def _described(error: Exception, case: PatternCase) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    text = first if isinstance(error, MirloError) else f"{type(error).__name__}: {first}"
    return f"{text}; {case.typed.text}"


def _placeholders(typed: TypedGraph, random: np.random.Generator) -> Arrays:
    """Return constants to match with, and arguments that are not looked at."""
    arrays = {}
    for leaf, kind in typed.types.items():
        shape = kind.static_shape if kind.is_static else (1,) * kind.rank
        array = typed.ranges[leaf].draw(shape, random, 1.0, False)
        arrays[leaf] = array if leaf.value is None else np.full_like(array, leaf.value)
    return arrays
