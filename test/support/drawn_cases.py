"""What `mirlo fuzz` and `mirlo check-target` draw for their seeds: every model, array and attribute, as checksums.

Tests of what these commands find take a few seeds and say that nothing is wrong. A planner that draws fewer sizes, or a
case that lost an attribute, would find less, and no such test would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import graph_operations, make_context
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.extend.codegen import (
    Artifact,
    CodeGenerator,
    ExternalModule,
    Pattern,
    is_const,
    is_op,
    wildcard,
    with_activation,
)
from mirlo.extend.target import Target, register_target
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.rules import LEGALIZE
from mirlo.runtime.errors import MirloError
from mirlo.testing import temporary_registrations
from mirlo.testing.snapshots import checksum
from mirlo.tools.conformance.arguments import intrinsic_arguments, intrinsic_kinds
from mirlo.tools.conformance.case import ANY, TABLE, VARIED, Operand, OperatorCase
from mirlo.tools.conformance.case_search import LATTICES
from mirlo.tools.conformance.check import intrinsic_bound, intrinsic_reference
from mirlo.tools.conformance.check import names as conformance_names
from mirlo.tools.conformance.derivations import GraphOperation, graphs_of
from mirlo.tools.conformance.patterns import PatternSearch
from mirlo.tools.conformance.programs import module_of
from mirlo.tools.conformance.rule_search import RuleSearch, _with_epilogue, name_of_rule, operators_for
from mirlo.tools.conformance.search import usual_kernels
from mirlo.tools.conformance.typed_graphs import TypedGraph, typed_graph, with_dynamic_dims
from mirlo.tools.conformance.values import again, draws, expectations
from mirlo.tools.fuzz import empty, graphs, guards, mutate, names, sizes, structure

Results = tuple[np.ndarray, ...]

PER_LINE = 8
"""Seeds of a line of the table of models."""


@dataclass(frozen=True)
class Drawn(CodeGenerator):
    """A code generator with a pattern for which cases are searched."""

    name = "drawn"

    def patterns(self) -> list[tuple[str, Pattern]]:
        """Return a convolution with what may follow it."""
        return [("conv_transpose", with_activation(is_op("relax.conv_transpose")(wildcard(), is_const(), ...), None))]

    def codegen(self, module: ExternalModule) -> Artifact:
        """Compile nothing: cases are drawn, and not run."""
        raise NotImplementedError


def fuzzed() -> Iterator[str]:
    """Yield what each kind of fuzzing draws, some seeds in a line."""
    kinds: dict[str, tuple[Callable[[int], str], Iterable[int]]] = {
        "graph": (_graph, range(64)),
        "guarded": (_guarded, range(40)),
        "broken": (_broken, range(40)),
        "structure": (_structure, range(80)),
        "names": (lambda seed: checksum(names.hostile_model(seed)[0].SerializeToString(deterministic=True)), range(40)),
        "sizes": (_sized, range(0, 2 * sizes.BLOCK * len(sizes.ALL), sizes.BLOCK // 2)),
        "empty": (_empty, range(40)),
    }
    for kind, (draw, seeds) in kinds.items():
        for first in range(0, len(seeds := list(seeds)), PER_LINE):
            part = seeds[first : first + PER_LINE]
            yield f"{kind} {part[0]}: {' '.join(map(draw, part))}"


def _graph(seed: int) -> str:
    graph = graphs.random_graph(seed)
    drawn = [graph.model.SerializeToString(deterministic=True), arrays(graph.feeds), graph.operators, graph.epsilons]
    return checksum(plain(drawn))


def _guarded(seed: int) -> str:
    case = guards.guarded_case(seed)
    calls = case.calls(sorted({**case.graph.feeds, **case.lifted}))
    return checksum([*(model.SerializeToString(deterministic=True) for model in case.models), *map(arrays, calls)])


def _broken(seed: int) -> str:
    content, name = mutate.broken_file(seed)
    return checksum([content, name])


def _structure(seed: int) -> str:
    model, mutations = structure.hostile_model(seed)
    return checksum([model.SerializeToString(deterministic=True), mutations])


def _sized(seed: int) -> str:
    call = sizes.hostile_call(seed)
    return checksum([call.name, call.model.SerializeToString(deterministic=True), arrays(call.feeds), call.is_known])


def _empty(seed: int) -> str:
    nodes = empty.random_nodes(seed)
    model, feeds = empty.model_of(nodes)
    return checksum([model.SerializeToString(deterministic=True), arrays(feeds), list(map(str, nodes))])


def arrays(feeds: Mapping[str, np.ndarray]) -> list[str]:
    """Return names, types, shapes and checksums of arrays."""
    return [f"{name} {shown(array)}" for name, array in feeds.items()]


def shown(array: np.ndarray) -> str:
    """Return the type, shape and checksum of an array."""
    return f"{array.dtype}{list(array.shape)} {checksum(array.tobytes())}"


def _case(case: OperatorCase) -> str:
    """Return what a case is, but for the numbers that it expects."""
    operands = [list(map(shown, o)) if isinstance(o, list) else None if o is None else shown(o) for o in case.operands]
    expected = [f"{array.dtype}{list(array.shape)}" for array in case.expected]
    return plain([operands, case.attributes, expected, case.tolerance])


def plain(value: object) -> str:
    """Return a value as text that is the same with each version of numpy."""
    if isinstance(value, np.ndarray):
        return shown(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {plain(each)}' for key, each in value.items())}}}"
    return f"[{', '.join(map(plain, value))}]" if isinstance(value, (list, tuple)) else repr(value)


def sums_of(array: np.ndarray) -> str:
    """Return seven digits of a sum of logarithms, with weights of places: libraries differ in the last bits."""
    with np.errstate(all="ignore"):
        numbers = np.nan_to_num(array.astype(np.float64), nan=77.0, posinf=99.0, neginf=-88.0).reshape(-1)
        terms = np.sign(numbers) * np.log1p(np.abs(numbers))
    return f"{float(np.sum(terms * (1 + np.arange(numbers.size) % 7))):.6e}"


def conformance() -> Iterator[str]:
    """Yield the cases of each operator: checksums per element type, and the first one's expected results."""
    conformance_names()
    for title, table in (("", TABLE), ("varied ", VARIED)):
        for operator in sorted(name for name in table.makers if "." not in name):
            cases = {kind: table.cases(operator, kind) for kind in ANY}
            sums = [f"{kind} {checksum(list(map(_case, own)))}" for kind, own in cases.items() if own]
            first = [array for case in next(own for own in cases.values() if own) for array in case.expected]
            tiled = [
                checksum(list(map(_case, table.tiled_cases(operator, "f32", tile, small)))) for tile, small in TILED
            ]
            yield f"{title}{operator}: {' '.join(sums)}; {' '.join(map(sums_of, first))}; tiled {' '.join(tiled)}"
    yield from _intrinsics()
    yield from _kernels()
    with make_context(), ir.Location.unknown():
        for operator in sorted(name.removeprefix("relax.") for name in graph_operations()):
            if operator in TABLE.makers:
                yield f"graphs of {operator}: {' '.join(_graphs(operator))}"
    yield from _searched()


TILED = ((8, 1), (16, 3))
"""Multiples of sizes, and the largest sizes that stay."""


def _intrinsics() -> Iterator[str]:
    """Yield arguments of each intrinsic with the expected results, or with the reference of the comparison."""
    for name in INTRINSICS:
        shown = []
        for kind in intrinsic_kinds(name):
            with np.errstate(all="ignore"):
                arguments = intrinsic_arguments(name, kind, 1024)
                results = intrinsic_reference(name, arguments)
            shown.append(f"{kind} {' '.join(map(sums_of, [*arguments, results]))} within {intrinsic_bound(name, kind)}")
        yield f"tir.{name}: {checksum(shown)}"


def _kernels() -> Iterator[str]:
    """Yield kernels of one and of two blocks, with their expected results."""
    for case in usual_kernels():
        assert case.case is not None
        with make_context(), ir.Location.unknown():
            module, _ = module_of([case.program])
            text = str(module)
        yield f"{case.name}: {checksum(text)} {checksum(_case(case.case))} {' '.join(map(sums_of, case.case.expected))}"


def _graphs(operator: str) -> Iterator[str]:
    """Yield checksums of graphs of an operator with types, their elements and expected results."""
    random = np.random.default_rng(len(operator))
    for graph in graphs_of([_with_epilogue(f"relax.{operator}")])[0][-1:]:
        for kind, lattice in (("f32", LATTICES[0]), ("i8", LATTICES[2])):
            typed = typed_graph(graph, kind, lattice, random)
            if typed is None:
                yield f"{kind} none"
                continue
            dynamic = [(variant.text, sorted(map(str, axes.values()))) for variant, axes in with_dynamic_dims(typed)]
            yield f"{kind} {checksum([typed.text, typed.changes, dynamic])} {checksum(_elements(typed, random))}"


def _elements(typed: TypedGraph, random: np.random.Generator) -> str:
    """Return sums of the drawn inputs of a graph, and the bounds of its results."""
    try:
        with np.errstate(all="ignore"):
            arrays = next(draws(typed, random, _without_meaning), None)
            if arrays is None:
                return "no elements"
            drawn = [*arrays.values(), *again(typed, arrays, random).values()]
            expected = expectations(typed, arrays, _without_meaning)
    except (MirloError, ValueError) as error:
        return str(error)
    limits = [sums_of(array) for each in expected for array in (each.exact, each.low, each.high)]
    return f"{' '.join(map(sums_of, drawn))} -> {' '.join(limits)}"


def _without_meaning(operation: GraphOperation, operands: Sequence[Operand], attributes: dict[str, object]) -> Results:
    raise ValueError(f"{operation.name} has no meaning in numpy")


def _searched() -> Iterator[str]:
    """Yield the tried shapes of some patterns and rules, those that are taken, and the reasons of the others."""
    with temporary_registrations(__name__):
        register_target(Target("drawn", "draws cases", codegen=Drawn))
        targets = Targets.parse("drawn").or_host()
        chosen = targets.generators[0]
        pattern = chosen.entries[0].full_name
        search = PatternSearch(
            pattern, f"{chosen},{targets.host}", str(targets.host), entries=chosen.entries, others=[]
        )
        taken = search._taken(search.graphs()[0])
        cases = search._varied([case for typed in taken for case in search._cases(typed)])
        varied = [f"{case.name} {case.kind} {' '.join(map(sums_of, case.arrays.values()))}" for case in cases]
        sized = [case and case.typed.text for case in (search._sized(case, 5) for case in cases)]
        reasons = [f"{count} {reason}" for reason, count in search.reasons.items()]
        yield f"search {pattern}: {search.tried} tried, {len(taken)} taken {checksum([t.text for t in taken])}"
        yield f"  {len(varied)} cases {checksum([*varied, *sized])}, declined {checksum([*reasons, search._why()])}"
    for rule in sorted((rule for rule in LEGALIZE if rule.target == "llvm"), key=name_of_rule):
        operators = operators_for(rule, {})
        rule_search = RuleSearch(name_of_rule(rule), "llvm", "llvm", rule=rule, operators=tuple(operators))
        graphs = rule_search.graphs()[0]
        beside = [str(graph) for graph in (*graphs, *rule_search.beside_others(graphs))]
        yield f"graphs for {rule_search.name}: {len(beside)} {checksum(beside)} of {checksum(operators)}"


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {
    "tools/cli/fuzzed.txt": fuzzed,
    "tools/check_target/cases.txt": conformance,
}
"""The tables, below `test`."""
