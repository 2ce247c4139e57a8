"""Kernels of all families as targets plan them: choices, and how often each operation stands in the loops.

python test/support/planned_kernels.py      # writes the tables again, after a change of schedules that is meant

What a rule chooses, and what it emits for that, are only a matter of speed for tests that compare numbers: a loop that
runs in one thread, a load that is not hoisted or a smaller tile compute the same. The tables show such a change.
That of tiles has what the rules of target `llvm` choose for the contractions of whole models.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

from weightless import weightless_model

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import prim_functions
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.kernel_nodes import kernel_calls
from mirlo.passes.options import quote
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rule_choices import choices_of_type
from mirlo.passes.schedule.buffers import SCHEDULE
from mirlo.passes.schedule.choices import choices_of
from mirlo.passes.session import Session
from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.pipeline import compile_pipeline

TESTS = Path(__file__).resolve().parents[1]
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
    "nvvm": ("sm_90a",),
    "c": ("",),
    TILES: ("avx2", "avx512"),
}
"""The machines that each is planned for."""
MODELS = ("mobilenetv2", "resnet50")
"""The models whose tiles are written down."""
LOOPS = ("scf.for", "scf.while", "gpu.launch")
ORDER = [choice.name for choice in choices_of_type(ContractionChoices)]
WRITE = "python test/support/planned_kernels.py"


def plan(target: str, machine: str) -> Iterator[str]:
    """Yield a line for each kernel: what it is of, its schedule, its operations by number and name."""
    options = " ".join(filter(None, [f"target={target}", machine and f"machine={quote(machine)}"]))
    passes = [f"legalize{{target={target}}}", "annotate-kinds", "fuse-ops", "fuse-tir", f"schedule{{{options}}}"]
    if target in ("spirv", "nvvm"):
        passes.append(f"map-threads{{target={target} shuffles={str(target == 'nvvm').lower()}}}")
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(PROGRAM.read_text(encoding="utf-8"))
        Pipeline(",".join(passes)).run(module, verify_each=False)
        functions = [function.operation for function in module.body.operations]
        kernels = {symbol_name(function): function for function in functions if SCHEDULE in function.attributes}
        for model in functions:
            for call in model.regions[0].blocks[0].operations:
                name = call.attributes["callee"].value if "callee" in call.attributes else ""
                kernel = kernels.get(name)
                if kernel is not None:
                    yield f"{machine or target} {symbol_name(model)}: {describe(kernel)}"


def describe(kernel: ir.Operation) -> str:
    """Return the schedule of a kernel, its operations by the number of loops around them, a sum over its constants."""
    operations = list(_operations(kernel, 0))
    counts = Counter((depth, name) for depth, name, _ in operations if name != "arith.constant")
    loops = [
        f"[{depth}] {' '.join(f'{count} {name}' for (own, name), count in sorted(counts.items()) if own == depth)}"
        for depth in sorted({depth for depth, _ in counts})
    ]
    constants = crc32("\n".join(sorted(constant for _, _, constant in operations)).encode())
    return f"{kernel.attributes[SCHEDULE]}: {' '.join(loops)} constants {constants:08x}"


def _operations(op: ir.Operation, depth: int) -> Iterator[tuple[int, str, str]]:
    """Yield the operations inside of another: the number of loops around, the name, those of loops with marks; values.

    Values are those of constants.
    """
    for region in op.regions:
        for block in region.blocks:
            for inner in (each.operation for each in block.operations):
                marks = [name for name in inner.attributes if "." in name]
                yield depth, f"{inner.name}{marks or ''}", str(inner.attributes.get("value", ""))
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
    return [line for machine in MACHINES[target] for line in plan(target, machine)]


def assert_planned(target: str) -> None:
    """Compare the plans of a target's kernels with its table."""
    path = TESTS / TABLES[target]
    assert table(target) == path.read_text(encoding="utf-8").splitlines(), f"{WRITE} writes {path.name} again"


if __name__ == "__main__":
    for each in sys.argv[1:] or TABLES:
        (TESTS / TABLES[each]).write_text("\n".join(table(each)) + "\n", encoding="utf-8")
