"""The search for cases that a pattern or a rule takes, and their comparison: types, sizes, dynamic dims, threads."""

from __future__ import annotations

import contextlib
import itertools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import field, replace

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import takes_dynamic_dims
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.case import Operand
from mirlo.tools.conformance.derivations import GraphLeaf, GraphOperation, PatternGraph
from mirlo.tools.conformance.programs import (
    CompiledPrograms,
    TestProgram,
    compile_programs,
    constant,
    module_of,
    operator_class,
)
from mirlo.tools.conformance.typed_graphs import Lattice, TypedGraph, finite_range, typed_graph, with_dynamic_dims
from mirlo.tools.conformance.values import Arrays, again, compute, constant_of, drawn, draws, expectations

BATCH = 40
"""Graphs that are matched in one module."""
REFERENCES = 8
"""References that the host compiles in one module, of which each call computes all."""
MAX_TRIED = 480
"""Graphs of a pattern that are matched before it counts as never taken."""
ENOUGH = 16
"""Cases of a pattern that are computed, beside one of each element type that they lack."""
SHARE = 16
"""Graphs of an element type that are matched, where none was taken before."""
MAX_BESIDE = 6
"""Cases in which other graphs compute operands."""
IMAGES = (7, 8, 9)
"""Sizes of images in cases."""
LATTICES = (
    Lattice(), Lattice(8), Lattice(4), Lattice(4, 1), Lattice(16, 0, IMAGES), Lattice(16, 3, IMAGES),
    Lattice(32, 0, IMAGES), Lattice(64, 0, IMAGES), Lattice(128, 0, IMAGES), Lattice(64), Lattice(256),
)  # fmt: skip
KINDS = ("f32", "i8", "u8", "f16", "bf16", "f64", "i32", "i64", "bool")
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33)
"""Sizes of a dynamic dim, each in one call of the same executable."""
MAX_DYNAMIC = 6
"""Cases with dynamic dims, as different as possible."""
MAX_REASONS = 3
MAX_WRONG = 8
"""Wrong results after which no further ones are compared."""
THREADS = 2
"""Threads for which cases with dynamic dims are compiled; all cases where a dynamic dim is never taken."""
CONCURRENT = 4
"""Pairs of calls that two threads make at once."""
ROUNDS = 2
"""Draws of each graph, element type and lattice."""
LAST_ROUNDS = 6
"""More draws of the sizes that declines name, where nothing is taken."""


@dataclass(frozen=True)
class CaseCheck:
    """The outcome of the cases of a pattern or a rule."""

    name: str
    """`target.pattern`, or what the matrix calls the rule."""
    kinds: dict[str, list[str]] = field(default_factory=dict)
    """What is wrong, by element type of the first argument; an empty text for a case that is right."""
    failures: dict[str, list[str]] = field(default_factory=dict)
    """Errors of the code generator or the rule, likewise."""
    untaken: str = ""
    """Why no case was compared."""
    tried: int = 0
    """Graphs that were matched."""


@dataclass(frozen=True)
class GraphCase:
    """A graph with elements: what it is called, and whether a dim of it is dynamic."""

    name: str
    typed: TypedGraph
    arrays: Arrays
    axes: dict[GraphLeaf, dict[int, str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        first = self.typed.arguments[0] if self.typed.arguments else self.typed.graph.outputs[0]
        return self.typed.type_of(first).dtype.name

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


@dataclass(frozen=True)
class HostReference:
    """An operation without a reference in numpy, as the host compiled it, with others in one module."""

    compiled: CompiledPrograms
    arrays: Sequence[Sequence[np.ndarray]]
    """Arguments of all operations of the module."""
    number: int
    """Which operation of the module it is."""

    def compute(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        operands = [*self.arrays[: self.number], arrays, *self.arrays[self.number + 1 :]]
        return self.compiled.call(operands)[self.number]


def _renamed(kind: TensorType, name: str) -> TensorType:
    """Return a type whose symbols are the program's own."""
    own = {symbol: D.symbol(f"{symbol}_{_symbol(name)}") for dim in kind.shape for symbol in D.symbols_of(dim)}
    return TensorType(tuple(D.substitute(dim, own) for dim in kind.shape), kind.dtype)


def _symbol(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _emit(typed: TypedGraph, known: dict[GraphLeaf, ir.Value]) -> list[ir.Value]:
    computed: dict[GraphOperation, tuple[ir.Value, ...]] = {}

    def emitted(value: object) -> ir.Value:
        return known[value] if isinstance(value, GraphLeaf) else computed[value.operation][value.number]  # type: ignore[attr-defined]

    for operation in typed.graph.operations:
        operands = [
            [emitted(v) for v in o] if isinstance(o, list) else None if o is None else emitted(o)
            for o in operation.operands.values()
        ]
        result = operator_class(operation.name.removeprefix("relax.")).make(*operands, **typed.attributes[operation])
        computed[operation] = result if isinstance(result, tuple) else (result,)
    return [computed[value.operation][value.number] for value in typed.graph.outputs]


@dataclass
class CaseSearch(ABC):
    """The search for cases that one pattern or rule takes, and their comparison."""

    name: str
    target: str
    host: str
    tried: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, None] = field(default_factory=dict)
    """The element types of graphs that were taken."""
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    returned: dict[str, None] = field(default_factory=dict)
    """Why regions went back to the graph."""
    references: dict[str, HostReference] = field(default_factory=dict)
    """Operations without a reference in numpy, by name, types and attributes."""

    @abstractmethod
    def graphs(self) -> tuple[list[PatternGraph], str]:
        """Return graphs to try, or the reason why there are none."""

    @abstractmethod
    def passes(self) -> str:
        """Return the passes after which it is known which rule or pattern takes each operation."""

    @abstractmethod
    def taken_names(self, notes: Sequence[object]) -> frozenset[str]:
        """Return the names of programs of which a part is taken."""

    @abstractmethod
    def declined(self, notes: Sequence[object]) -> Iterator[str]:
        """Yield the reasons why programs, or parts of them, are not taken."""

    def trusted(self) -> AbstractContextManager[None]:
        """Return a block in which the host compiles for comparison."""
        return contextlib.nullcontext()

    def check(self) -> CaseCheck:
        """Return the outcome of the cases."""
        graphs, why = self.graphs()
        taken = self._taken(graphs)
        self._prepare_references([(typed, drawn(typed, self.random, 0)) for typed in taken])
        cases = [case for typed in taken for case in self._cases(typed)]
        if not cases:
            return CaseCheck(self.name, untaken=why or self._why(), tried=self.tried)
        result = CaseCheck(self.name)
        varied = self._varied(cases)
        self._compare(varied, result)
        if not self._compare_dynamic(taken, result):
            self._compare(varied, result, THREADS)
        if not result.kinds and not result.failures:
            why = "; ".join(f"it gives regions back: {reason}" for reason in self.returned) or "no result is comparable"
            return replace(result, untaken=f"{len(cases)} cases were placed, and none was computed by it: {why}")
        for text in self.inexact():
            result.kinds.setdefault(cases[0].kind, []).append(text)
        return result

    def session_options(self) -> dict[str, object]:
        """Return options of the session in which graphs are matched."""
        return {}

    def inexact(self) -> Sequence[str]:
        """Return the exact differences, on residues, in the graphs that were matched."""
        return ()

    def _note_returned(self, notes: Sequence[object]) -> None:
        """Record why a code generator returned regions, as a placed region is not yet a computed one."""
        regions = [region for note in notes if isinstance(note, Placement) for region in note.regions]
        self.returned |= dict.fromkeys(region.reason for region in regions if region.reason)

    def _why(self) -> str:
        alike: dict[str, Counter[str]] = {}
        for reason, count in self.reasons.items():
            alike.setdefault(reason.partition(" (")[0], Counter())[reason] += count
        groups = sorted(alike.values(), key=lambda group: -sum(group.values()))[:MAX_REASONS]
        last = "; ".join(group.most_common(1)[0][0] for group in groups)
        return f"no case was found; tried {self.tried}" + (f"; the last declines: {last}" if last else "")

    # ------------------------------------------------------------------------------------------------------ search

    def _taken(self, graphs: Sequence[PatternGraph]) -> list[TypedGraph]:
        """Return graphs that the pattern takes, as different as possible, and at least one of each element type."""
        matched = self._found(graphs, MAX_TRIED, 4 * ENOUGH)
        others = self.beside_others(graphs)
        if not matched:
            return _most_different(self._found(others, MAX_TRIED, 4 * ENOUGH), ENOUGH)
        order = self.random.permutation(len(others))[:MAX_BESIDE]
        beside = self._found([others[i] for i in order], BATCH, 1)
        chosen = _most_different(matched, ENOUGH)
        matched |= self._of_other_types(graphs)
        covered = set[object]().union(*(matched[typed] for typed in chosen))
        left = {typed: own & {*KINDS} - covered for typed, own in matched.items() if typed not in chosen}
        chosen += _most_different({typed: own for typed, own in left.items() if own}, len(KINDS), once=True)
        return [*chosen, *_most_different(beside, MAX_BESIDE)]

    def beside_others(self, graphs: Sequence[PatternGraph]) -> list[PatternGraph]:
        """Return graphs in which others compute operands, for patterns not taken alone, and regions of several."""
        return []

    def _of_other_types(self, graphs: Sequence[PatternGraph]) -> dict[TypedGraph, set[object]]:
        """Return graphs that are taken, of usual sizes and of element types of which none was taken before.

        The numbers that are drawn for others stay the same.
        """
        matched: dict[TypedGraph, set[object]] = {}
        pending: dict[TypedGraph, set[object]] = {}
        pairs = list(itertools.product(LATTICES[:2], graphs))
        random = np.random.default_rng(len(graphs))
        for kind in [kind for kind in KINDS if kind not in self.kinds]:
            order = ((kind, *pairs[i]) for i in random.permutation(len(pairs)))
            pending |= itertools.islice(_typed_graphs(order, random), SHARE)
            if len(pending) + SHARE > BATCH:
                matched |= self._match(pending, random)
        return matched | self._match(pending, random)

    def _found(self, graphs: Sequence[PatternGraph], most: int, enough: int) -> dict[TypedGraph, set[object]]:
        """Return graphs that are taken, with their features; try up to a limit, until enough are found."""
        matched: dict[TypedGraph, set[object]] = {}
        pending: dict[TypedGraph, set[object]] = {}
        last = self.tried + most
        for typed, features in _typed_graphs(self._order(graphs), self.random):
            pending[typed] = features
            if len(pending) == min(BATCH, most):
                matched |= self._match(pending, self.random)
                if self.tried >= last or len(matched) >= enough:
                    break
        return matched | self._match(pending, self.random)

    def _order(self, graphs: Sequence[PatternGraph]) -> Iterator[tuple[str, Lattice, PatternGraph]]:
        """Yield the sizes to draw: the usual sizes of all types first, then multiples that declines name.

        If no graph is found, more of the latter are drawn.
        """
        for part in range(4):
            lattices: tuple[Lattice, ...] = LATTICES[:2] if part == 0 else LATTICES[2:]
            if part in (1, 3):
                pairs = re.findall(r"=(\d+)\b", " ".join(self.reasons))
                named = {int(number) for number in pairs if 1 < int(number) <= 256} - {k.tile for k in LATTICES}
                lattices = tuple(Lattice(number, 0, IMAGES) for number in sorted(named))
            if part == 3 and self.kinds:
                return
            for _ in range(ROUNDS if part < 3 else LAST_ROUNDS):
                for kind in tuple(self.kinds or KINDS):
                    for lattice in lattices:
                        for graph in graphs:
                            yield kind, lattice, graph

    def _match(
        self, pending: dict[TypedGraph, set[object]], random: np.random.Generator
    ) -> dict[TypedGraph, set[object]]:
        """Match the waiting graphs, and return those that are taken."""
        taken = self._matched(list(pending), random)
        matched = {typed: own for (typed, own), is_taken in zip(pending.items(), taken, strict=True) if is_taken}
        self.kinds.update(dict.fromkeys(kind for own in matched.values() for kind in KINDS if kind in own))
        self.tried += len(pending)
        pending.clear()
        return matched

    def _matched(self, graphs: Sequence[TypedGraph], random: np.random.Generator) -> list[bool]:
        """Return which graphs are taken, after the passes that come before."""
        if not graphs:
            return []
        cases = [GraphCase(f"case {i}", typed, _placeholders(typed, random)) for i, typed in enumerate(graphs)]
        try:
            with make_context(), ir.Location.unknown():
                module, _ = module_of([case.program for case in cases])
                session = Session(options=self.session_options(), report=lambda *_: None)
                Pipeline(self.passes()).run(module, session)
        except (MirloError, ir.MLIRError) as error:
            if len(graphs) == 1:
                self.reasons[str(error).splitlines()[0]] += 1
                return [False]
            middle = len(graphs) // 2
            return [*self._matched(graphs[:middle], random), *self._matched(graphs[middle:], random)]
        names = self.taken_names(session.notes)
        self.reasons.update(self.declined(session.notes))
        return [case.name in names for case in cases]

    # -------------------------------------------------------------------------------------------------- comparison

    def _cases(self, typed: TypedGraph) -> Iterator[GraphCase]:
        try:
            for arrays in draws(typed, self.random, self._by_host):
                yield GraphCase("", typed, arrays)
        except (MirloError, ir.MLIRError, ValueError) as error:
            self.reasons[f"no reference: {str(error).splitlines()[0]}"] += 1

    def _varied(self, cases: Sequence[GraphCase]) -> list[GraphCase]:
        """Return the cases under new names, each with constants once more with other constants."""
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
        """Compute an operation without a reference in numpy on the host alone."""
        program = _reference_program(operation, operands, attributes)
        if program.name not in self.references:
            self.references |= self._compile_references({program.name: program})
        return self.references[program.name].compute(program.arrays)

    def _prepare_references(self, cases: Sequence[tuple[TypedGraph, Arrays]]) -> None:
        """Compile the operations of graphs that have no reference in numpy, many in one module."""
        needed: dict[str, TestProgram] = {}
        for typed, arrays in cases:
            for part in _without_reference(typed, arrays):
                program = _reference_program(*part)
                if program.name not in self.references:
                    needed.setdefault(program.name, program)
        self.references |= self._compiled_references(needed)

    def _prepare_sizes(self, cases: Sequence[GraphCase], by_size: Sequence[Sequence[GraphCase | None]]) -> None:
        """Compile the operations of graphs with dynamic dims that have no reference in numpy, once for all sizes."""
        needed: dict[str, TestProgram] = {}
        used: dict[str, str] = {}
        for sized in by_size:
            for case, own in zip(cases, sized, strict=True):
                for part in _without_reference(own.typed, own.arrays) if own is not None else ():
                    program, operation = _reference_program(*part), part[0]
                    name = f"{case.name} {case.typed.graph.operations.index(operation)}"
                    types = [_renamed(kind, name) for kind in _flat(case.typed.operand_types(operation))]
                    needed.setdefault(name, replace(program, types=[_in_f64(kind) for kind in types]))
                    if program.name not in self.references:
                        used[program.name] = name
        compiled = self._compiled_references({name: needed[name] for name in used.values()})
        self.references |= {key: compiled[name] for key, name in used.items() if name in compiled}

    def _compiled_references(self, programs: Mapping[str, TestProgram]) -> dict[str, HostReference]:
        """Return references by name, without those that do not compile: a case of its own raises such an error."""
        compiled: dict[str, HostReference] = {}
        listed = list(programs.items())
        for first in range(0, len(listed), REFERENCES):
            with contextlib.suppress(MirloError, ir.MLIRError, ValueError):
                compiled |= self._compile_references(dict(listed[first : first + REFERENCES]))
        return compiled

    def _compile_references(self, programs: Mapping[str, TestProgram]) -> dict[str, HostReference]:
        with self.trusted():
            compiled = compile_programs(list(programs.values()), self.host)
        arrays = [program.arrays for program in programs.values()]
        return {name: HostReference(compiled, arrays, i) for i, name in enumerate(programs)}

    def _compare(self, cases: Sequence[GraphCase], result: CaseCheck, threads: int = 1) -> None:
        """Compute the cases in one module, twice with other arguments and then both at once, and compare."""
        first = [case.arrays for case in cases]
        second = [again(case.typed, case.arrays, self.random) for case in cases]
        inputs = [[c.given(a) for c, a in zip(cases, arrays, strict=True)] for arrays in (first, second)]
        try:
            compiled = compile_programs([case.program for case in cases], self.target, threads)
            calls = [(arrays, compiled.call(own)) for arrays, own in zip((first, second), inputs, strict=True)]
            with ThreadPoolExecutor(2) as pool:
                calls += zip((first, second) * CONCURRENT, pool.map(compiled.call, inputs * CONCURRENT), strict=True)
        except Exception as error:  # a code generator and its loader may raise anything
            if len(cases) > 1:
                middle = len(cases) // 2
                self._compare(cases[:middle], result, threads)
                self._compare(cases[middle:], result, threads)
            elif self._host_computes(cases[0]):
                result.failures.setdefault(cases[0].kind, []).append(_described(error, cases[0]))
            return
        taken = self.taken_names(compiled.notes)
        self._note_returned(compiled.notes)
        judged: dict[tuple[str, int], list[tuple[np.ndarray, ...]]] = {}
        for arrays, results in calls:
            for case, own, outputs in zip(cases, arrays, results, strict=True):
                former = judged.setdefault((case.name, id(own)), [])
                if case.name in taken and not any(_equal(outputs, other) for other in former):
                    former.append(outputs)
                    self._judge(replace(case, arrays=own), outputs, result)

    def _judge(self, case: GraphCase, outputs: Sequence[np.ndarray], result: CaseCheck) -> None:
        if sum(bool(wrong) for texts in result.kinds.values() for wrong in texts) >= MAX_WRONG:
            return
        try:
            declared = Targets.parse(self.target).error_of([self.name.partition(".")[0]])
            wrong = _wrong(case, outputs, self._by_host, declared)
            if wrong and self._host_differs(case):
                return  # the reference is not to be trusted
        except (MirloError, ir.MLIRError, ValueError):
            return
        result.kinds.setdefault(case.kind, []).append(f"{wrong}; {case.typed.text}" if wrong else "")

    def _host_computes(self, case: GraphCase) -> bool:
        try:
            self._computed_by_host(case)
        except (MirloError, ir.MLIRError):
            return False
        return True

    def _host_differs(self, case: GraphCase) -> bool:
        """Return whether the host's result alone differs from the reference, too."""
        return _wrong(case, self._computed_by_host(case), self._by_host) is not None

    def _computed_by_host(self, case: GraphCase) -> tuple[np.ndarray, ...]:
        with self.trusted():
            return compile_programs([case.program], self.host).call([case.given(case.arrays)])[0]

    # ----------------------------------------------------------------------------------------------- dynamic dims

    def _compare_dynamic(self, taken: Sequence[TypedGraph], result: CaseCheck) -> bool:
        """Compute some of the graphs with a dynamic dim, at one size after the other; return whether any is taken."""
        host = Targets.parse(self.target).or_host().host
        if host is None or not takes_dynamic_dims(host.name):
            return False
        candidates: dict[TypedGraph, tuple[TypedGraph, dict[GraphLeaf, dict[int, str]]]] = {}
        for typed in dict.fromkeys(sorted(taken, key=lambda typed: len(typed.types))):
            candidates |= {dynamic: (typed, axes) for dynamic, axes in with_dynamic_dims(typed)}
        is_taken = self._matched(list(candidates), self.random)
        features = {
            dynamic: _dynamic_features(*candidates[dynamic])
            for dynamic, own in zip(candidates, is_taken, strict=True)
            if own
        }
        chosen: list[GraphCase] = []
        for dynamic in _most_different(features, MAX_DYNAMIC):
            typed, axes = candidates[dynamic]
            case = next(self._cases(typed), None)
            if case is not None:
                chosen.append(GraphCase(f"dynamic {len(chosen)}", dynamic, case.arrays, axes))
        if chosen:
            self._compare_sizes(chosen, result)
        return bool(chosen)

    def _compare_sizes(self, cases: Sequence[GraphCase], result: CaseCheck) -> None:
        """Compute cases in one module, at each size of their dynamic dims; those that it does not fit keep theirs."""
        compiled: CompiledPrograms | None = None
        by_size = [[self._sized(case, size) for case in cases] for size in SIZES]
        self._prepare_sizes(cases, by_size)
        self._prepare_references([(own.typed, own.arrays) for sized in by_size for own in sized if own is not None])
        for sized in by_size:
            if not any(sized):
                continue
            inputs = [(own or case).given((own or case).arrays) for case, own in zip(cases, sized, strict=True)]
            try:
                compiled = compiled or compile_programs([case.program for case in cases], self.target, THREADS)
                outputs = compiled.call(inputs)
            except Exception as error:  # a code generator and its loader may raise anything
                if len(cases) > 1:
                    for case in cases:
                        self._compare_sizes([case], result)
                elif sized[0] is not None and self._host_computes(sized[0]):
                    result.failures.setdefault(cases[0].kind, []).append(_described(error, sized[0]))
                return
            taken = self.taken_names(compiled.notes)
            self._note_returned(compiled.notes)
            for own, results in zip(sized, outputs, strict=True):
                if own is not None and own.name in taken:
                    self._judge(own, results, result)

    def _sized(self, case: GraphCase, size: int) -> GraphCase | None:
        """Return the case at one size of its dynamic dim, in types that are static."""
        types = dict(case.typed.types)
        for leaf, axes in case.axes.items():
            types[leaf] = types[leaf].with_shape([size if i in axes else d for i, d in enumerate(types[leaf].shape)])
        typed = case.typed.with_types(types)
        if typed is None:
            return None
        arrays = dict(case.arrays)
        for leaf in case.axes:
            former = arrays[leaf]
            numbers = self.random.uniform(*finite_range(former), types[leaf].static_shape)
            if not typed.ranges[leaf].dtype.is_float:
                numbers = np.rint(numbers)
                numbers[(numbers == 0) & (former != 0).all()] = 1  # it may be a divisor
            arrays[leaf] = numbers.astype(former.dtype)
        return GraphCase(case.name, typed, arrays)


def _without_reference(
    typed: TypedGraph, arrays: Arrays
) -> list[tuple[GraphOperation, Sequence[Operand], dict[str, object]]]:
    """Return the operations of a graph without a reference in numpy, with operands of their types and attributes."""
    recorded: list[tuple[GraphOperation, Sequence[Operand], dict[str, object]]] = []

    def record(
        operation: GraphOperation, operands: Sequence[Operand], attributes: dict[str, object]
    ) -> tuple[np.ndarray, ...]:
        recorded.append((operation, operands, attributes))
        return tuple(np.zeros(kind.static_shape, kind.dtype.to_numpy()) for kind in typed.results[operation])

    with contextlib.suppress(MirloError, ir.MLIRError, ValueError), np.errstate(all="ignore"):
        compute(typed, arrays, record)
    return recorded


def _flat(operands: Sequence[object]) -> list[TensorType]:
    listed = itertools.chain.from_iterable(o if isinstance(o, list) else [o] for o in operands)
    return [kind for kind in listed if isinstance(kind, TensorType)]


def _in_f64(kind: TensorType) -> TensorType:
    return kind.with_dtype("f64") if kind.dtype.is_float else kind


def _reference_program(
    operation: GraphOperation, operands: Sequence[Operand], attributes: dict[str, object]
) -> TestProgram:
    """Return a program of one operation, floats in f64; equal names have equal types and attributes."""
    flat = [array for o in operands for array in (o if isinstance(o, list) else [o]) if array is not None]
    flat = [array if array.dtype.kind in "biu" else array.astype(np.float64) for array in flat]

    def emit(values: list[ir.Value]) -> list[ir.Value]:
        rest = iter(values)
        arguments = [
            [next(rest) for _ in o] if isinstance(o, list) else None if o is None else next(rest) for o in operands
        ]
        result = operator_class(operation.name.removeprefix("relax.")).make(*arguments, **attributes)
        return list(result) if isinstance(result, tuple) else [result]

    layout = [len(o) if isinstance(o, list) else o is not None for o in operands]
    types = [(array.shape, array.dtype.name) for array in flat]
    return TestProgram(f"{operation.name} {layout} {types} {attributes}", flat, emit)


def _dynamic_features(typed: TypedGraph, axes: Mapping[GraphLeaf, Mapping[int, str]]) -> set[object]:
    """Return what a graph with a dynamic dim shows: its operations, its types, and which axis from the end it is."""
    first = typed.type_of(typed.arguments[0])
    ends = tuple(axis - first.rank for axis in axes[typed.arguments[0]])
    return {str(typed.graph), first.dtype.name, ends, (len(typed.types), ends)}


def _typed_graphs(
    order: Iterable[tuple[str, Lattice, PatternGraph]], random: np.random.Generator
) -> Iterator[tuple[TypedGraph, set[object]]]:
    """Yield different graphs of these element types and sizes, with their features."""
    seen: set[str] = set()
    for kind, lattice, graph in order:
        typed = typed_graph(graph, kind, lattice, random)
        if typed is not None and typed.text not in seen:
            seen.add(typed.text)
            yield typed, {str(graph), kind, lattice, *typed.changes}


def _most_different(features: dict[TypedGraph, set[object]], count: int, once: bool = False) -> list[TypedGraph]:
    """Return graphs that between them have as many features as possible, with `once` none without a new one."""
    left, chosen, covered = dict(features), list[TypedGraph](), set[object]()
    while left and len(chosen) < count:
        best = max(left, key=lambda typed: len(left[typed] - covered))
        if once and left[best] <= covered:
            break
        covered |= left.pop(best)
        chosen.append(best)
    return chosen


def _wrong(case: GraphCase, outputs: Sequence[np.ndarray], fallback: object, tolerance: float = 0.0) -> str | None:
    with np.errstate(all="ignore"):
        wanted = expectations(case.typed, case.arrays, fallback, tolerance)  # type: ignore[arg-type]
        wrongs = [expected.error_in(got, tolerance) for expected, got in zip(wanted, outputs, strict=True)]
    return next(filter(None, wrongs), None)


def _described(error: Exception, case: GraphCase) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    text = first if isinstance(error, MirloError) else f"{type(error).__name__}: {first}"
    return f"{text}; {case.typed.text}"


def _placeholders(typed: TypedGraph, random: np.random.Generator) -> Arrays:
    """Return constants to match with, and arguments that are not looked at."""
    arrays = {}
    for leaf, kind in typed.types.items():
        shape = kind.static_shape if kind.is_static else (1,) * kind.rank
        array = typed.ranges[leaf].draw(shape, random, 1.0, False)
        arrays[leaf] = array if leaf.value is None else constant_of(leaf.value, array)
    return arrays


def _equal(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
