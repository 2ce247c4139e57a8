"""Passes that run on a few of the equal layers leave what they leave when they run on all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from equal_layers import PASSES, check, compiled

from mirlo.passes.layers.once_per_layer import OncePerLayer, divide_steps
from mirlo.passes.pipeline import Pipeline

KIND, ROWS = "tensor<5x8xf32>", "tensor<8xf32>"
WEIGHT, COUNT = "tensor<8x8xf32>", 12


@dataclass(frozen=True)
class Layer:
    """What one layer computes: x + relu(x W + b), and what it returns."""

    factor: str = "dense<1.0>"
    bias: str | None = None
    operator: str = "relu"
    reads: str = ""
    """A value that is added, by default the one that the layer before computed."""
    returns: bool = False
    keeps: bool = False
    """Whether the layer adds to an argument of its own, and returns the sum."""
    weight: str | None = None
    transposed: bool = True
    normalizes: bool = False
    branches: bool = False

    def text(self, i: int) -> str:
        bias = self.bias or f"dense<[{', '.join(f'{i}.{j}' for j in range(8))}]>"
        weight = self.weight or f"w{i}"
        product = "{transpose_rhs = true}" if self.transposed else ""
        lines = [
            f'%w{i} = "relax.constant"() {{param = "{weight}"}} : () -> {WEIGHT}',
            f'%m{i} = "relax.matmul"(%x{i}, %w{i}) {product} : ({KIND}, {WEIGHT}) -> {KIND}',
            f'%b{i} = "relax.constant"() {{value = {bias} : {ROWS}}} : () -> {ROWS}',
            f'%a{i} = "relax.add"(%m{i}, %b{i}) : ({KIND}, {ROWS}) -> {KIND}',
            f'%r{i} = "relax.{self.operator}"(%a{i}) : ({KIND}) -> {KIND}',
            f'%f{i} = "relax.constant"() {{value = {self.factor} : tensor<f32>}} : () -> tensor<f32>',
            f'%s{i} = "relax.multiply"(%r{i}, %f{i}) : ({KIND}, tensor<f32>) -> {KIND}',
            f'%y{i} = "relax.add"({self.reads or f"%x{i}"}, %s{i}) : ({KIND}, {KIND}) -> {KIND}',
            f'%z{i} = "relax.tanh"(%y{i}) : ({KIND}) -> {KIND}',
        ]
        if self.normalizes:
            names = ["scale", "offset", "mean", "variance"]
            lines += [f'%{n}{i} = "relax.constant"() {{param = "{n}{i}"}} : () -> {ROWS}' for n in names]
            operands = ", ".join(f"%{n}{i}" for n in names)
            lines.append(
                f'%n{i} = "relax.batch_norm"(%z{i}, {operands}) {{axis = 1 : i64, epsilon = 1.0e-3 : f64}} : '
                f"({', '.join([KIND, *[ROWS] * 4])}) -> {KIND}"
            )
        if self.branches:
            lines.append(
                f"%n{i} = scf.if %c -> {KIND} {{\n"
                f'%e{i} = "relax.exp"(%z{i}) : ({KIND}) -> {KIND}\nscf.yield %e{i} : {KIND}\n'
                f"}} else {{\nscf.yield %z{i} : {KIND}\n}}"
            )
        last = "n" if self.normalizes or self.branches else "z"
        lines.append(f'%x{i + 1} = "relax.negative"(%{last}{i}) : ({KIND}) -> {KIND}')
        if self.keeps:
            lines.append(f'%k{i} = "relax.add"(%cache{i}, %r{i}) : ({KIND}, {KIND}) -> {KIND}')
        return "\n".join(lines)


def model_of(layers: list[Layer], more: str = "") -> str:
    """Return a function of these layers, between other operations."""
    kept = [f"k{i}" for i, layer in enumerate(layers) if layer.keeps]
    returned = [f"y{i}" for i, layer in enumerate(layers) if layer.returns]
    arguments = [f"%cache{i}: {KIND}" for i, layer in enumerate(layers) if layer.keeps]
    arguments += ["%c: i1"] * any(layer.branches for layer in layers)
    body = "\n".join(layer.text(i) for i, layer in enumerate(layers))
    results = ["last", *kept, *returned]
    kinds = ", ".join([KIND] * len(results))
    return (
        f"func.func @main({', '.join([f'%x: {KIND}', *arguments])}) -> ({kinds}) "
        f"attributes {{relax.entry}} {{\n"
        f'%x0 = "relax.exp"(%x) : ({KIND}) -> {KIND}\n{body}\n{more}\n'
        f'%last = "relax.sigmoid"(%x{len(layers)}) : ({KIND}) -> {KIND}\n'
        f"return {', '.join(f'%{name}' for name in results)} : {kinds}\n}}"
    )


FEW, OPERANDS = "no operations repeat often enough", "operations repeat, but not with equal operands"
PLAIN = Layer()


@pytest.mark.parametrize(
    ("count", "reason"), [(0, FEW), (1, FEW), (2, FEW), (7, FEW), (8, OPERANDS), (9, None), (COUNT, None), (23, None)]
)
@pytest.mark.parametrize("layer", [PLAIN, Layer(keeps=True), Layer(returns=True), Layer(keeps=True, returns=True)])
def test_numbers_of_layers(layer: Layer, count: int, reason: str | None) -> None:
    check(model_of([layer] * count), reason)


DIFFERENT: list[Callable[[Layer], Layer]] = [
    lambda layer: replace(layer, factor="dense<2.0>"),
    lambda layer: replace(layer, operator="sigmoid"),
    lambda layer: replace(layer, transposed=False),
    lambda layer: replace(layer, bias="dense<0.0>"),
    lambda layer: replace(layer, keeps=True),
    lambda layer: replace(layer, normalizes=True),
]


@pytest.mark.parametrize("change", DIFFERENT)
@pytest.mark.parametrize("at", [0, COUNT - 1])
def test_first_or_last_layers_differ(change: Callable[[Layer], Layer], at: int) -> None:
    layers = [PLAIN] * COUNT
    layers[at] = change(PLAIN)
    check(model_of(layers), None)


@pytest.mark.parametrize("change", DIFFERENT)
def test_a_layer_in_the_middle_differs(change: Callable[[Layer], Layer]) -> None:
    layers = [PLAIN] * COUNT
    layers[COUNT // 2] = change(PLAIN)
    check(model_of(layers), FEW)


@pytest.mark.parametrize("change", DIFFERENT)
def test_two_runs_of_layers(change: Callable[[Layer], Layer]) -> None:
    check(model_of([PLAIN] * 9 + [change(PLAIN)] * 10), "" if change(PLAIN).normalizes else None)


@pytest.mark.parametrize("change", DIFFERENT)
def test_alternating_layers(change: Callable[[Layer], Layer]) -> None:
    check(model_of([PLAIN, change(PLAIN)] * 10), "" if change(PLAIN).normalizes else None)


def test_equal_elements_in_all_layers() -> None:
    check(model_of([Layer(bias="dense<3.0>")] * COUNT), None)


def test_layers_with_one_weight() -> None:
    check(model_of([Layer(weight="w3", bias="dense<3.0>")] * COUNT), "layers differ neither in arguments nor")
    check(model_of([Layer(weight="w3")] * COUNT), None)


def test_some_layers_share_a_weight() -> None:
    check(model_of([Layer(weight=f"w{i // 2}") for i in range(COUNT)]), "layers share some of the constants")


def test_values_that_cross_layers() -> None:
    crossing = [Layer(reads=f"%r{i - 2}") if i >= 2 else PLAIN for i in range(COUNT)]
    check(model_of(crossing), OPERANDS)
    first = [Layer(reads="%r0") if i else PLAIN for i in range(COUNT)]
    check(model_of(first), None)
    before = [Layer(reads=f"%r{i - 1}") if i else PLAIN for i in range(COUNT)]
    check(model_of(before), None)


def test_a_value_is_read_after_the_layers() -> None:
    more = f'%more = "relax.add"(%r4, %x{COUNT}) : ({KIND}, {KIND}) -> {KIND}\n'
    text = model_of([PLAIN] * COUNT, more).replace(f'"relax.sigmoid"(%x{COUNT})', '"relax.sigmoid"(%more)')
    check(text, "a value of a layer is read after the next one")


def test_a_pass_reads_constants() -> None:
    check(model_of([Layer(normalizes=True)] * COUNT), "a pass reads constants of the layers (step=simplify)")


def test_branches_in_layers() -> None:
    check(model_of([Layer(branches=True)] * COUNT), None)


def test_layers_in_a_loop() -> None:
    body = "\n".join(PLAIN.text(i) for i in range(COUNT))
    text = (
        f"func.func @main(%x: {KIND}, %n: index) -> {KIND} attributes {{relax.entry}} {{\n"
        f"%zero = arith.constant 0 : index\n%one = arith.constant 1 : index\n"
        f"%last = scf.for %i = %zero to %n step %one iter_args(%x0 = %x) -> ({KIND}) "
        f"{{\n{body}\nscf.yield %x{COUNT} : {KIND}\n}}\nreturn %last : {KIND}\n}}"
    )
    check(text, FEW)


def test_nothing_differs_but_arguments() -> None:
    check(model_of([Layer(keeps=True, weight="w0", bias="dense<3.0>")] * COUNT), "read different values")


def test_parameters_are_missing() -> None:
    text = model_of([PLAIN] * COUNT).replace('"w5"', '"other"')
    check(text, "the parameters of the layers are not available")


def test_less_is_done_for_more_layers() -> None:
    """Rules are tried on as many operators, however many layers there are."""
    from mirlo.passes.graph import rewrite

    def tried(count: int) -> int:
        calls = 0
        rewrite_op = rewrite._rewrite_op

        def counted(*arguments: object) -> bool:
            nonlocal calls
            calls += 1
            return rewrite_op(*arguments)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rewrite, "_rewrite_op", counted)
            compiled(model_of([PLAIN] * count), Pipeline([OncePerLayer(PASSES)]))
        return calls

    assert tried(COUNT) == tried(23) > 0


def test_passes_that_run_on_a_few_layers() -> None:
    """A compilation divides its passes once: from the first one on graphs to the one that makes kernels."""
    groups = divide_steps(Pipeline.named("llvm").steps)
    (names,) = [[step.name for step in steps] for steps, keeps in groups if keeps]
    assert {"simplify", "pack-nbits", "legalize"} <= set(names)
