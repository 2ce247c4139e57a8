"""Random graphs, random patterns, and an evaluator of graphs whose parts are functions of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.extend import is_const, is_op, repeat, several, wildcard
from mirlo.passes.byoc.outline import functions_of
from mirlo.passes.byoc.outline_external import external_modules
from mirlo.passes.byoc.tables import Entry, entry_of

UNARY: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, np.float32(0)), "tanh": np.tanh, "negative": np.negative, "abs": np.abs,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "multiply": np.multiply, "subtract": np.subtract, "maximum": np.maximum,
}  # fmt: skip
KIND = "tensor<4xf32>"


def random_graph(rng: random.Random) -> str:
    """The text of a function: operators on vectors, some of two results, some values unused."""
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


def random_tables(rng: random.Random) -> dict[str, list[Entry]]:
    """One to three targets with one to three patterns each."""
    tables = {}
    for t in range(rng.randint(1, 3)):
        rows = [(f"p{i}", random_pattern(rng)) for i in range(rng.randint(1, 5))]
        tables[f"t{t}"] = [entry_of(f"t{t}", row) for row in rows]
    return tables


def random_pattern(rng: random.Random) -> Any:
    """A tree, a chain, a fork or a diamond."""
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
    """An operator that reads a value."""
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


def evaluate(module: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What `main` returns; calls of composites, regions and functions of external modules are followed."""
    nested = {name: functions_of(found) for name, found in external_modules(module).items()}
    return _run(functions_of(module)["main"], inputs, functions_of(module), nested)


def _run(function: Any, inputs: list[Any], functions: dict[str, Any], nested: dict[str, dict[str, Any]]) -> list[Any]:
    block = function.regions[0].blocks[0]
    env: dict[Any, Any] = dict(zip(block.arguments, inputs, strict=True))
    for op in [o.operation for o in block.operations]:
        operands = [env[value] for value in op.operands]
        short = op.name.partition(".")[2]
        if op.name == "func.return":
            return operands
        if op.name == "func.call":
            made = _run(functions[op.attributes["callee"].value], operands, functions, nested)
        elif op.name == "relax.call_external":
            owner, _, name = op.opview.callee.partition("::")
            made = _run(nested[owner][name], operands, nested[owner], nested)
        elif op.name == "relax.constant":
            made = [np.array(op.opview.value)]
        else:
            made = [UNARY[short](*operands) if short in UNARY else BINARY[short](*operands)]
        env.update(zip(op.results, made, strict=True))
    raise AssertionError("no return")
