"""The code of small kernels on every target: what its pipeline makes of an operator, and what its generator prints.

Operators take turns on the targets. Each is the first case that `mirlo check-target` computes, with small operands as
arguments; the functions in the lit tests of target `llvm` have the constants that its own passes look for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from packed_products import Weights
from snapshots import TESTS, checksum

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.code import listings_of_module
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.byoc.artifacts import artifacts_of
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.runtime.params import ParameterStore
from mirlo.tools.conformance.case import ANY, TABLE, OperatorCase
from mirlo.tools.conformance.check import names as load_cases
from mirlo.tools.conformance.programs import module_of, operator_program

MACHINES = (
    "llvm{cpu=x86-64-v3}", "nvvm", "spirv", "llvm{cpu=neoverse-n2}", "c", "llvm{cpu=x86-64-v2}", "nvvm{chip=sm_90a}",
    "llvm{cpu=x86-64-v4}",
)  # fmt: skip
FORMS = {"llvm": "llvm-dialect", "nvvm": "nvvm-dialect", "spirv": "spirv-dialect", "c": "c"}
"""What each target prints of a kernel before another program compiles it."""
PROGRAMS = "targets/llvm"
"""The folder with the functions of target `llvm`."""
GENERATORS = {"onnx{source-only}": 2, "c{source-only},llvm": 20}
"""Code generators whose packages are always there, and one operator in how many they get."""
BATCH = 20
"""Operators in one program."""
EVERY = 3
"""One operator in so many is lowered."""
PACKED = (
    (4, 32, "", 0),
    (8, 64, "packed", 4),
    (2, 16, "real", 0),
    (4, 64, "packed", 4),
    (8, 32, "", 0),
    (2, 32, "", 4),
)
"""Products with packed weights: bits, block, zero points, and the level at which sums may be rounded."""


def operators() -> Iterator[str]:
    """Yield what becomes of a case of each operator."""
    load_cases()
    for number, operator in enumerate(sorted(name for name in TABLE.makers if "." not in name)[::EVERY]):
        kinds = [kind for kind in ANY if TABLE.cases(operator, kind)]
        kind = kinds[number % len(kinds)]
        machine = MACHINES[number % len(MACHINES)]
        with make_context(), ir.Location.unknown():
            yield f"{machine} {operator} {kind}: {_code(_module(operator, TABLE.cases(operator, kind)[0]), machine)}"


def _module(operator: str, case: OperatorCase) -> ir.Module:
    return module_of([operator_program(operator, case)])[0]


def functions() -> Iterator[str]:
    """Yield what becomes of the functions in lit tests of target `llvm`, on its machines in turns."""
    machines = [machine for machine in MACHINES if machine.startswith("llvm")]
    number = 0
    for path in sorted((TESTS / PROGRAMS).glob("*.mlir")):
        for part in path.read_text(encoding="utf-8").split("// -----"):
            text = re.sub(r"//.*", "", part)
            with make_context(), ir.Location.unknown():
                program = ir.Module.parse(text)
                for function in program.body.operations:
                    alone = ir.Module.create()
                    alone.body.append(function.operation.clone())
                    name = ir.StringAttr(function.attributes["sym_name"]).value
                    alone.body.operations[0].attributes["sym_name"] = ir.StringAttr.get("main")
                    machine = machines[number % len(machines)]
                    number += 1
                    yield f"{machine} {path.stem} {name}: {_code(alone, machine)}"


def packed() -> Iterator[str]:
    """Yield what becomes of products with weights of a few bits, on the machines of target `llvm` in turns."""
    machines = [machine for machine in MACHINES if machine.startswith("llvm")]
    for number, (bits, block, zeros, level) in enumerate(PACKED):
        model = Weights(48, 160, bits, block, zeros).model(level, shape=("m",) if number % 2 else (2,))
        machine = machines[number % len(machines)]
        module, store = import_model(model)
        with module.context, ir.Location.unknown():
            yield f"{machine} packed {bits} {block} {zeros} {level}: {_code(module, machine, store)}"


def placed() -> Iterator[str]:
    """Yield what code generators make of the operators, some in a program, and why they decline others."""
    load_cases()
    names = sorted(name for name in TABLE.makers if "." not in name)
    for target, every in GENERATORS.items():
        targets = Targets.parse(target)
        for first in range(0, len(names), BATCH):
            part = names[first : first + BATCH : every]
            programs = [operator_program(name, next(filter(None, _cases(name)))[0]) for name in part]
            session = Session()
            with make_context(), ir.Location.unknown():
                module, _ = module_of(programs)
                Pipeline(targets.steps()).run(module, session)
                artifacts = [(each.functions, checksum(each.data)) for each in artifacts_of(module)]
            attempts = [
                f"{attempt.pattern} {attempt.accepted} {attempt.reason}"
                for note in session.notes
                if isinstance(note, Placement)
                for attempt in note.attempts
            ]
            yield f"{target} {part[0]} to {part[-1]}: {checksum(artifacts)}, {len(attempts)} {checksum(attempts)}"


def _cases(operator: str) -> list[list[OperatorCase]]:
    return [TABLE.cases(operator, kind) for kind in ANY]


def _code(module: ir.Module, machine: str, store: ParameterStore | None = None) -> str:
    """Return checksums of a module after the pipeline of a target, and of the code of its kernels; or the error."""
    targets = Targets.parse(machine).or_host()
    try:
        Pipeline(targets.pipeline()).run(module, Session(store or ParameterStore()), verify_each=False)
        lowered = str(module)
        listings = listings_of_module(module, machine, FORMS[targets.host_target.name])
    except MirloError as error:
        return f"refused {checksum(error)}"
    return f"{checksum(lowered)} {' '.join(checksum(listing.content) for listing in listings)}"


def lowered() -> Iterator[str]:
    """Yield the lines of the table."""
    yield from operators()
    yield from functions()
    yield from packed()
    yield from placed()


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {"targets/lowered.txt": lowered}
"""The table, below `test`."""
