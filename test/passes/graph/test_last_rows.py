"""The pass `keep-last-rows` on graphs that are deep."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

DEPTH = 3000


def test_many_elementwise_operators_before_the_output() -> None:
    kind = 'tensor<?x?x4xf32, #relax.dims<["batch", "rows", 4]>>'
    body = "".join(f'  %{i + 1} = "relax.negative"(%{i}) : ({kind}) -> {kind}\n' for i in range(DEPTH))
    text = (
        f'func.func @main(%0: {kind} {{relax.name = "x"}}) -> ({kind} {{relax.name = "logits"}}) {{\n'
        f"{body}  return %{DEPTH} : {kind}\n}}"
    )
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline("keep-last-rows").run(module, Session())
        names = [op.operation.name for op in module.body.operations[0].regions[0].blocks[0].operations]
    assert names == ["relax.slice_dims", *["relax.negative"] * DEPTH, "func.return"]
