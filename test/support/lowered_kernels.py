"""The code of small kernels on every target: what its pipeline makes of an operator, and what its generator prints.

Operators take turns on the targets. Each is the first case that `mirlo check-target` computes, with small operands as
arguments; the functions in the lit tests of target `llvm` have the constants that its own passes look for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from packed_products import Weights
from snapshots import TESTS

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.code import listings_of_module
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.byoc.artifacts import artifacts_of
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.figures import RegionWork
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import LEGALIZE
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.runtime.params import ParameterStore
from mirlo.targets.nvvm.chips import CHIPS
from mirlo.targets.nvvm.speeds import LIBRARY, MIRLO_KERNELS, expected, figures_of
from mirlo.testing.snapshots import checksum
from mirlo.tools.conformance.case import ANY, TABLE, OperatorCase
from mirlo.tools.conformance.check import names as load_cases
from mirlo.tools.conformance.programs import module_of, operator_program

MACHINES = (
    "llvm{cpu=x86-64-v3}", "nvvm{chip=sm_80}", "spirv", "llvm{cpu=neoverse-n2}", "c", "llvm{cpu=x86-64-v2}",
    "nvvm{chip=sm_90a}", "llvm{cpu=x86-64-v4}",
)  # fmt: skip
OWN_RULES = {"gpu": "nvvm{chip=sm_80}", "llvm": "llvm{cpu=x86-64-v3}"}
"""Targets with legalization rules of their own, and machines on which these are taken."""
FORMS = {"llvm": "llvm-dialect", "nvvm": "nvvm-dialect", "spirv": "spirv-dialect", "c": "c"}
"""What each target prints of a kernel before another program compiles it."""
PROGRAMS = "targets/llvm"
"""The folder with the functions of target `llvm`."""
GENERATORS = {"onnx{source-only}": 2}
"""Code generators whose packages are always there, and one operator in how many they get."""
WORKS = tuple(
    RegionWork(operator, (f"{dtype}{left}", f"{dtype}{right}"), (f"{dtype}{result}",), flops, size)
    for dtype in ("f16", "bf16", "f32", "f64", "i8", "f8e4m3fn")
    for operator, left, right, result, flops, size in (
        ("relax.matmul", [8192, 8192], [8192, 8192], [8192, 8192], 2 * 8192**3, 3 * 2 * 8192**2),
        ("relax.matmul", [64, 65536], [65536, 64], [64, 64], 2 * 64 * 64 * 65536, 4 * 64 * 65536),
        ("relax.matmul", [16896, 4096], [4096, 128], [16896, 128], 2 * 16896 * 4096 * 128, 2 * 16896 * 4096),
        ("relax.matmul", [4, 9, 512], [512, 4096], [4, 9, 4096], 2 * 36 * 512 * 4096, 2 * 512 * 4096),
        ("relax.matmul", [8, 4096], [4096, 4096], [8, 4096], 2 * 8 * 4096**2, 2 * 4096**2),
        (
            "relax.conv",
            [32, 64, 56, 56],
            [64, 64, 3, 3],
            [32, 64, 56, 56],
            2 * 32 * 56**2 * 64**2 * 9,
            4 * 32 * 56**2 * 64,
        ),
        ("relax.attention", [1, 16, 4096, 128], [1, 16, 4096, 128], [1, 16, 4096, 128], 10**11, 10**6),
        ("relax.add", [4096, 4096], [4096, 4096], [4096, 4096], 4096**2, 3 * 2 * 4096**2),
    )
)
"""Work on GPUs, bound by products, by memory and by the cache."""
BATCH = 20
"""Operators in one program."""
EVERY = 6
"""One operator in this many is lowered."""
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
    """Yield what becomes of a case of each operator, and of those for which a target has a rule of its own."""
    load_cases()
    names = sorted(name for name in TABLE.makers if "." not in name)
    chosen = [(name, MACHINES[number % len(MACHINES)]) for number, name in enumerate(names[::EVERY])]
    for target, machine in OWN_RULES.items():
        Targets.parse(machine).or_host().pipeline()  # which loads its rules
        own = sorted({rule.subject.removeprefix("relax.") for rule in LEGALIZE if rule.target == target})
        chosen += [(name, machine) for name in own if name in TABLE.makers]
    with make_context(), ir.Location.unknown():
        for number, (operator, machine) in enumerate(chosen):
            kinds = [kind for kind in ANY if TABLE.cases(operator, kind)]
            kind = kinds[number % len(kinds)]
            code = _code(_module(operator, TABLE.cases(operator, kind)[0]), machine)
            yield f"{machine} {operator} {kind}: {code}"


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


def estimates() -> Iterator[str]:
    """Yield what kernels are expected to take on each chip, and why."""
    for chip in CHIPS:
        for maker in (MIRLO_KERNELS, LIBRARY):
            costs = [expected(chip, maker, tf32, work) for work in WORKS for tf32 in (False, True)]
            bounds = [figures_of(chip, maker, tf32).cost(work) for work in WORKS for tf32 in (False, True)]
            shown = [cost and f"{cost.microseconds:.6g} {cost.why}" for cost in (*costs, *bounds)]
            yield f"{chip} {'library' if maker is LIBRARY else 'kernels'}: {checksum(shown)}"


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
    yield from estimates()


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {"targets/lowered.txt": lowered}
"""The table, below `test`."""
