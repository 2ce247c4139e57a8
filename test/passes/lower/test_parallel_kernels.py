"""Generated contractions of dynamic sizes: threads share all of them, and no two iterations write to the same place."""

from __future__ import annotations

import random

import pytest

from mirlo.dialects.bindings import ir
from mirlo.extend.ops import make_context
from mirlo.extend.target import Pipeline, find_target
from mirlo.passes.lower.parallel import ParallelRecord
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions
from mirlo.runtime.params import ParameterStore

CPUS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "icelake-server", "neoverse-n1")
SIZES = (3, 16, 24, 40, 100)
CACHES = ("", " l2=4KiB", " l2=64KiB")
"""Small caches, for which loops are in blocks also where sizes are small."""


def tensor(dims: list[int | str], kind: str) -> str:
    sizes = "x".join("?" if isinstance(dim, str) else str(dim) for dim in dims)
    if all(isinstance(dim, int) for dim in dims):
        return f"tensor<{sizes}x{kind}>"
    names = ", ".join(f'"{dim}"' if isinstance(dim, str) else str(dim) for dim in dims)
    return f"tensor<{sizes}x{kind}, #relax.dims<[{names}]>>"


def dims_of(rng: random.Random, names: str) -> dict[str, int | str]:
    """Return sizes, at least one of which is dynamic."""
    dynamic = rng.choice(names)
    return {name: name if name == dynamic or rng.random() < 0.5 else rng.choice(SIZES) for name in names}


def matmul(rng: random.Random, kind: str) -> tuple[str, list[str], str]:
    batch, k = rng.choice(([], ["b"], [3])), rng.choice(SIZES)
    dims = dims_of(rng, "mn")
    lhs, rhs = [*batch, dims["m"], k], [*(batch if rng.random() < 0.5 else []), k, dims["n"]]
    return '"relax.matmul"', [tensor(lhs, kind), tensor(rhs, kind)], tensor([*batch, dims["m"], dims["n"]], kind)


def conv(rng: random.Random, kind: str) -> tuple[str, list[str], str]:
    dims, window = dims_of(rng, "nhw"), rng.choice((1, 3))
    channels, filters, pad = rng.choice(SIZES), rng.choice(SIZES), window // 2
    image, result = ([dims["n"], depth, dims["h"], dims["w"]] for depth in (channels, filters))
    weights = tensor([filters, channels, window, window], kind)
    call = f'"relax.conv" {{padding = array<i64: {pad}, {pad}, {pad}, {pad}>}}'
    return call, [tensor(image, kind), weights], tensor(result, kind)


def program(rng: random.Random) -> str:
    call, operands, result = rng.choice((matmul, conv))(rng, rng.choice(("f32", "f16", "f64")))
    name, _, attributes = call.partition(" ")
    return f"""func.func @main(%x: {operands[0]}, %y: {operands[1]}) -> {result} {{
      %0 = {name}(%x, %y) {attributes} : ({", ".join(operands)}) -> {result}
      return %0 : {result}
    }}"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(500))
def test_threads_share_each_kernel(seed: int) -> None:
    rng = random.Random(seed)
    text, session = program(rng), Session(ParameterStore())
    target = find_target("llvm")
    options = CompileOptions(
        "llvm", threads=2, target_options=f"cpu={rng.choice(CPUS)} thread_work=1{rng.choice(CACHES)}"
    )
    passes, outlining, _ = target.pipeline(options).partition("outline-parallel")
    assert outlining
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(f"{passes}outline-parallel{{threads=2 work=1}})").run(module, session)
    records = [note for note in session.notes if isinstance(note, ParallelRecord)]
    assert any(record.shared for record in records)
    assert not [reason for record in records for reason in record.declined], text
