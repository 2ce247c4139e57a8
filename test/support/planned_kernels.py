"""Kernels of all families as targets plan them: choices, and how often each operation stands in the loops.

What a rule chooses, and what it emits for that, are only a matter of speed for tests that compare numbers: a loop that
runs in one thread, a load that is not hoisted or a smaller tile compute the same. The tables show such a change.
That of tiles has what the rules of target `llvm` choose for the contractions of whole models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from snapshots import TESTS, assert_snapshot
from weightless import weightless_model

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import prim_functions
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.locations import kernel_calls
from mirlo.passes.options import quote
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rule_choices import choices_of_type
from mirlo.passes.schedule.buffers import SCHEDULE
from mirlo.passes.schedule.choices import choices_of
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.schedule.tuned import set_tuned
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.pipeline import compile_pipeline
from mirlo.testing.snapshots import checksum

PROGRAM = TESTS / "support" / "Inputs" / "planned_kernels.mlir"
TILES = "tiles"
"""The table of the tiles of whole models."""
TABLES = {
    "llvm": "targets/llvm/schedule/planned.txt",
    "spirv": "targets/gpu/planned.txt",
    "nvvm": "targets/nvvm/planned.txt",
    "c": "targets/c/planned.txt",
    TILES: "targets/llvm/schedule/planned_tiles.txt",
}
"""The tables of targets, below `test`."""
MACHINES = {
    "llvm": ("avx512vnni", "avx2", "cpu=neoverse-n2"),
    "spirv": ("",),
    "nvvm": ("sm_90a", "sm_100a", "sm_80"),
    "c": ("",),
    TILES: ("avx2", "avx512"),
}
"""The machines that each is planned for; kernels that one before plans equally are left out."""
MODELS = ("mobilenetv2", "resnet50")
"""The models whose tiles are written down."""
LOOPS = ("scf.for", "scf.while", "gpu.launch")
ORDER = [choice.name for choice in choices_of_type(ContractionChoices)]


def plan(target: str, machine: str) -> Iterator[str]:
    """Yield a line for each kernel: its source, its schedule, and the counts of its operations."""
    options = " ".join(filter(None, [f"target={target}", machine and f"machine={quote(machine)}"]))
    passes = [f"legalize{{target={target}}}", "annotate-kinds", "fuse-ops", "fuse-tir", f"schedule{{{options}}}"]
    if target in ("spirv", "nvvm"):
        passes.append(f"map-threads{{target={target} shuffles={str(target == 'nvvm').lower()}}}")
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(PROGRAM.read_text(encoding="utf-8"))
        session = Session()
        Pipeline(",".join(passes[:4])).run(module, session, verify_each=False)
        unscheduled = module.operation.clone()
        Pipeline(",".join(passes[4:])).run(module, session, verify_each=False)
        records = {note.function: note for note in session.notes if isinstance(note, ScheduleRecord)}
        functions = [function.operation for function in module.body.operations]
        kernels = {symbol_name(function): function for function in functions if SCHEDULE in function.attributes}
        for model in functions:
            for call in model.regions[0].blocks[0].operations:
                name = call.attributes["callee"].value if "callee" in call.attributes else ""
                kernel = kernels.get(name)
                if kernel is not None:
                    yield f"{machine or target} {symbol_name(model)}: {describe(kernel, records[name])}"
        if machine == MACHINES[target][0]:
            yield from other_choices(unscheduled, records, machine or target, passes[4:])


def other_choices(
    module: ir.Operation, records: Mapping[str, ScheduleRecord], machine: str, passes: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each kernel: what becomes of it with other values of what its rule chose, one at a time.

    Kernels take turns: which choice of a rule, and whether half or twice of what was chosen, or 1.
    """
    turns: Counter[str] = Counter()
    for function in prim_functions(module):
        name, sums = symbol_name(function), []
        choices = {choice: value for choice, value in records[name].choices.items() if isinstance(value, int)}
        for choice in sorted(choices, key=lambda choice: (turns[choice], choice))[:1]:
            value = choices[choice]
            other = (value // 2, 2 * value, 1)[turns[choice] % 3]
            turns[choice] += 1
            alone = ir.Module.create()
            alone.body.append(function.operation.clone())
            set_tuned(alone.body.operations[0], {choice: other})
            try:
                Pipeline(",".join(passes)).run(alone, Session(), verify_each=False)
                sums.append(f"{choice}={other} {checksum(text_of(alone.operation))}")
            except MirloError as error:
                sums.append(f"{choice}={other} refused {checksum(error)}")
        if sums:
            yield f"{machine} @{name} chosen: {', '.join(sums)}"


def describe(kernel: ir.Operation, record: ScheduleRecord) -> str:
    """Return the schedule of a kernel, its operations by the number of loops around them, checksums.

    The counts say what a change is about. The checksums show the others: of its text, such as operands in another
    order; of why rules declined; and of the primitives that make it again.
    """
    counts = Counter(_operations(kernel, 0))
    loops = [
        f"[{depth}] {' '.join(f'{count} {name}' for (own, name), count in sorted(counts.items()) if own == depth)}"
        for depth in sorted({depth for depth, _ in counts})
    ]
    sums = {"text": text_of(kernel), "declined": "\n".join(map(str, record.attempts)), "words": record.trace}
    shown = " ".join(f"{name} {checksum(value)}" for name, value in sums.items())
    return f"{kernel.attributes[SCHEDULE]}: {' '.join(loops)} {shown}"


def text_of(op: ir.Operation) -> str:
    """Return an operation as text."""
    return str(op.get_asm(assume_verified=True, use_local_scope=True))


def _operations(op: ir.Operation, depth: int) -> Iterator[tuple[int, str]]:
    """Yield the number of loops around each operation but constants, and its name; that of a loop with its marks."""
    for region in op.regions:
        for block in region.blocks:
            for inner in (each.operation for each in block.operations):
                if inner.name != "arith.constant":
                    marks = [name for name in inner.attributes if "." in name]
                    yield depth, f"{inner.name}{marks or ''}"
                yield from _operations(inner, depth + (inner.name in LOOPS))


def tiles(name: str) -> Iterator[str]:
    """Yield two lines for each contraction of a model, for each machine: the kernel with its nodes, what was chosen."""
    passes = compile_pipeline().removeprefix("builtin.module(").removesuffix(")")
    before, planning = passes.partition(",lower-loops")[0].split(",apply-tuning", 1)
    with TemporaryDirectory() as folder:
        module, store = import_model(weightless_model(name, Path(folder)))
        with module.context, ir.Location.unknown():
            Pipeline(f"builtin.module({before})").run(module, Session(store), verify_each=False)
            for machine in MACHINES[TILES]:
                copy, session = module.operation.clone(), Session(store, options={"machine": machine})
                Pipeline(f"builtin.module(apply-tuning{planning})").run(copy, session, verify_each=False)
                nodes: dict[str, list[str]] = {}
                for kernel, labels in kernel_calls(copy.operation):
                    nodes.setdefault(kernel, []).extend(labels)
                for function in prim_functions(copy):
                    choices = choices_of(function)
                    if "tile_rows" in choices:
                        kernel = symbol_name(function)
                        yield f"{machine} {name} @{kernel}: {', '.join(dict.fromkeys(nodes[kernel]))}"
                        yield "  " + ", ".join(f"{key}={choices[key]}" for key in ORDER if key in choices)


def table(target: str) -> list[str]:
    """Return the lines of a target's table."""
    if target == TILES:
        return [line for name in MODELS for line in tiles(name)]
    lines: dict[str, str] = {}
    for machine in MACHINES[target]:
        for line in plan(target, machine):
            lines.setdefault(line.removeprefix(f"{machine or target} "), line)
    return list(lines.values())


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {path: partial(table, target) for target, path in TABLES.items()}


def assert_planned(target: str) -> None:
    """Compare the plans of a target's kernels with its table."""
    assert_snapshot(TABLES[target], table(target))
