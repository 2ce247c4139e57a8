"""Random graphs, random patterns, and an evaluator of graphs whose parts are functions of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.extend.codegen import is_const, is_op, repeat, several, wildcard
from mirlo.passes.byoc.outline import functions_of
from mirlo.passes.byoc.outline_external import external_modules
from mirlo.passes.byoc.tables import PatternEntry, entry_of

UNARY: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, np.float32(0)), "tanh": np.tanh, "negative": np.negative, "abs": np.abs,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "multiply": np.multiply, "subtract": np.subtract, "maximum": np.maximum,
}  # fmt: skip
KIND = "tensor<4xf32>"


def random_graph(rng: random.Random) -> str:
    """Return the text of a function: operators on vectors, some of two results, some values unused."""
    values = [f"%a{i}" for i in range(rng.randint(1, 3))]
    arguments = ", ".join(f"{value}: {KIND}" for value in values)
    lines = []
    for i in range(rng.randint(1, 3)):
        numbers = [round(rng.uniform(-1, 1), 3) for _ in range(4)]
        lines.append(f'%c{i} = "relax.constant"() {{value = dense<{numbers}> : {KIND}}} : () -> {KIND}')
    constants = [f"%c{i}" for i in range(len(lines))]
    for i in range(rng.randint(3, 24)):
        pick = lambda: values[-1 - min(int(rng.expovariate(0.35)), len(values) - 1)]  # noqa: E731
        if rng.random() < 0.45:
            lines.append(f'%v{i} = "relax.{rng.choice([*UNARY])}"({pick()}) : ({KIND}) -> {KIND}')
        else:
            right = rng.choice(constants) if rng.random() < 0.25 else pick()
            lines.append(f'%v{i} = "relax.{rng.choice([*BINARY])}"({pick()}, {right}) : ({KIND}, {KIND}) -> {KIND}')
        values.append(f"%v{i}")
    returned = [values[-1], *rng.choices(values, k=rng.randint(0, 2))]
    kinds = ", ".join([KIND] * len(returned))
    body = "\n  ".join([*lines, f"return {', '.join(returned)} : {kinds}"])
    return f"func.func @main({arguments}) -> ({kinds}) {{\n  {body}\n}}\n"


def random_tables(rng: random.Random) -> dict[str, list[PatternEntry]]:
    """One to three targets with one to three patterns each."""
    tables = {}
    for t in range(rng.randint(1, 3)):
        rows = [(f"p{i}", random_pattern(rng)) for i in range(rng.randint(1, 5))]
        tables[f"t{t}"] = [entry_of(f"t{t}", row) for row in rows]
    return tables


def random_pattern(rng: random.Random) -> Any:
    """Return a tree, a chain, a fork or a diamond."""
    kind = rng.random()
    if kind < 0.12:
        steps = rng.sample([*UNARY], 2)
        return repeat(_tree(rng, 1), lambda x: is_op(*(f"relax.{name}" for name in steps))(x), 0, rng.randint(1, 4))
    if kind < 0.3:
        x = wildcard().named("x")
        return several(_reads(rng, x), _reads(rng, x))
    if kind < 0.4:
        top, left, right = _operator(rng), _operator(rng), _operator(rng)
        links = top.fork_to(left, right) if rng.random() < 0.5 else top >> left ^ right
        return several(links)
    if kind < 0.5:
        label = _operator(rng).output().named("top")
        return is_op(f"relax.{rng.choice([*BINARY])}")(_reads(rng, label), _reads(rng, label))
    return _tree(rng, rng.randint(1, 3))


def _operator(rng: random.Random) -> Any:
    names = rng.sample([*UNARY, *BINARY], rng.randint(2, 6))
    return is_op(*(f"relax.{name}" for name in names))


def _reads(rng: random.Random, value: Any) -> Any:
    """Return an operator that reads a value."""
    if rng.random() < 0.5:
        return is_op(*(f"relax.{name}" for name in rng.sample([*UNARY], 3)))(value)
    return is_op(*(f"relax.{name}" for name in rng.sample([*BINARY], 2)))(value, wildcard())


def _tree(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.15:
        return wildcard() if rng.random() < 0.8 else is_const()
    if rng.random() < 0.5:
        made = is_op(*(f"relax.{name}" for name in rng.sample([*UNARY], rng.randint(2, 4))))(_tree(rng, depth - 1))
    else:
        names = rng.sample([*BINARY], rng.randint(1, 4))
        made = is_op(*(f"relax.{name}" for name in names))(_tree(rng, depth - 1), _tree(rng, depth - 1))
    if rng.random() < 0.4:
        made = made.output()
    if rng.random() < 0.25:
        made = made.optional(lambda x: is_op(f"relax.{rng.choice([*UNARY])}")(x))
    return made if rng.random() < 0.9 else made | _tree(rng, depth)


def random_image_graph(rng: random.Random) -> tuple[str, dict[str, np.ndarray]]:
    """Return the text of a function on images, with residuals, and its weights."""
    channels = 2
    kind = f"tensor<1x{channels}x4x4xf32>"
    values, lines, weights = ["%a0"], [], {}
    for i in range(rng.randint(3, 12)):
        x, name = rng.choice(values[-3:]), f"%v{i}"
        choice = rng.random()
        if choice < 0.5:
            size = rng.choice([1, 3])
            weight = f"tensor<{channels}x{channels}x{size}x{size}xf32>"
            weights[f"w{i}"] = np.float32([rng.uniform(-1, 1) for _ in range(channels * channels * size * size)])
            weights[f"w{i}"] = weights[f"w{i}"].reshape(channels, channels, size, size)
            lines.append(f'%w{i} = "relax.constant"() {{param = "w{i}"}} : () -> {weight}')
            attributes = "" if size == 1 else " {padding = array<i64: 1, 1, 1, 1>}"
            lines.append(f'{name} = "relax.conv"({x}, %w{i}){attributes} : ({kind}, {weight}) -> {kind}')
        elif choice < 0.6:
            window = "kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>"
            lines.append(f'{name} = "relax.max_pool"({x}) {{{window}}} : ({kind}) -> {kind}')
        elif choice < 0.8:
            lines.append(f'{name} = "relax.{rng.choice(["add", "maximum"])}"({x}, {rng.choice(values[-4:])}) '
                         f": ({kind}, {kind}) -> {kind}")  # fmt: skip
        else:
            lines.append(f'{name} = "relax.{rng.choice(["relu", "tanh", "negative"])}"({x}) : ({kind}) -> {kind}')
        values.append(name)
    returned = [values[-1], rng.choice(values)][: rng.randint(1, 2)]
    kinds = ", ".join([kind] * len(returned))
    body = "\n  ".join([*lines, f"return {', '.join(returned)} : {kinds}"])
    return f"func.func @main(%a0: {kind}) -> ({kinds}) {{\n  {body}\n}}\n", weights


def random_padded_chain(rng: random.Random) -> tuple[str, dict[str, np.ndarray]]:
    """Return the text of convolutions one after the other, each of data that are padded, pooled or activated first."""
    inner, outer = "tensor<1x2x4x4xf32>", "tensor<1x2x6x6xf32>"
    lines, weights, value = [], {}, "%a0"
    for i in range(rng.randint(1, 4)):
        size = 1
        for j in range(rng.randint(1, 3)):
            name, kind = f"%v{i}_{j}", inner if size == 1 else outer
            choice = rng.choice(["pad", "max_pool", "relu", "add"])
            if choice == "pad" and size == 1:
                size, mode = 3, rng.choice(["reflect", "edge", "wrap"])
                pads = f'{{mode = "{mode}", pads = array<i64: 0, 0, 1, 1, 0, 0, 1, 1>}}'
                lines.append(f'{name} = "relax.pad"({value}) {pads} : ({inner}) -> {outer}')
            elif choice == "max_pool":
                window = "kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>"
                lines.append(f'{name} = "relax.max_pool"({value}) {{{window}}} : ({kind}) -> {kind}')
            elif choice == "add":
                added = '"relax.constant"() {value = dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>}'
                lines.append(f"%c{i}_{j} = {added} : () -> tensor<2x1x1xf32>")
                lines.append(f'{name} = "relax.add"({value}, %c{i}_{j}) : ({kind}, tensor<2x1x1xf32>) -> {kind}')
            else:
                lines.append(f'{name} = "relax.relu"({value}) : ({kind}) -> {kind}')
            value = name
        weight = f"tensor<2x2x{size}x{size}xf32>"
        weights[f"w{i}"] = np.float32([rng.uniform(-1, 1) for _ in range(4 * size * size)]).reshape(2, 2, size, size)
        lines.append(f'%w{i} = "relax.constant"() {{param = "w{i}"}} : () -> {weight}')
        kind = inner if size == 1 else outer
        lines.append(f'%y{i} = "relax.conv"({value}, %w{i}) : ({kind}, {weight}) -> {inner}')
        value = f"%y{i}"
    body = "\n  ".join([*lines, f"return {value} : {inner}"])
    return f"func.func @main(%a0: {inner}) -> {inner} {{\n  {body}\n}}\n", weights


def _conv(op: Any, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    weight = weight.transpose({"OI*": (0, 1, 2, 3), "*IO": (3, 2, 0, 1), "O*I": (0, 3, 1, 2)}[op.kernel_layout])
    return _windowed(op, x, lambda taps: np.einsum("nchwij,ocij->nohw", taps, weight), weight.shape[2])


def _windowed(op: Any, x: np.ndarray, reduced: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
    """Return a function of all windows, which have the size of their padding or none."""
    image = x if op.data_layout == "NC*" else x.transpose(0, 3, 1, 2)
    amount = (size - 1) // 2 if op.padding else 0
    fill = 0.0 if op.operation.name == "relax.conv" else -np.inf
    padded = np.pad(image, ((0, 0), (0, 0), (amount, amount), (amount, amount)), constant_values=fill)
    made = reduced(np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3)))
    return made if op.data_layout == "NC*" else made.transpose(0, 2, 3, 1)


IMAGES: dict[str, Callable[..., np.ndarray]] = {
    "conv": _conv,
    "max_pool": lambda op, x: _windowed(op, x, lambda taps: taps.max(axis=(-1, -2)), op.kernel[0]),
    "permute": lambda op, x: x.transpose(op.axes),
    "pad": lambda op, x: np.pad(x, list(zip(op.pads[:4], op.pads[4:], strict=True)), mode=op.mode),
}


def evaluate(module: Any, inputs: list[np.ndarray], params: Any = None) -> list[np.ndarray]:
    """Evaluate `main`; calls of composites, regions and functions of external modules are followed."""
    nested = {name: functions_of(found) for name, found in external_modules(module).items()}
    return Evaluator(nested, params).run(functions_of(module)["main"], inputs, functions_of(module))


@dataclass(frozen=True)
class Evaluator:
    """What graphs mean, in numpy."""

    nested: dict[str, dict[str, Any]]
    params: Any

    def run(self, function: Any, inputs: list[Any], functions: dict[str, Any]) -> list[Any]:
        block = function.regions[0].blocks[0]
        env: dict[Any, Any] = dict(zip(block.arguments, inputs, strict=True))
        for op in [o.operation for o in block.operations]:
            operands = [env[value] for value in op.operands]
            if op.name == "func.return":
                return operands
            env.update(zip(op.results, self.results(op, operands, functions), strict=True))
        raise AssertionError("no return")

    def results(self, op: Any, operands: list[Any], functions: dict[str, Any]) -> list[Any]:
        short = op.name.partition(".")[2]
        if op.name == "func.call":
            return self.run(functions[op.attributes["callee"].value], operands, functions)
        if op.name == "relax.call_external":
            owner, _, name = op.opview.callee.partition("::")
            return self.run(self.nested[owner][name], operands, self.nested[owner])
        if op.name == "relax.constant":
            param = op.opview.param
            return [np.array(op.opview.value) if param is None else self.params.get(param)]
        if short in IMAGES:
            return [IMAGES[short](op.opview, *operands)]
        return [UNARY[short](*operands) if short in UNARY else BINARY[short](*operands)]
