"""Random programs with branches and loops: their text, and their reference results."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

KIND = "tensor<4xf32>"
Environment = dict[str, np.ndarray]
Run = Callable[[Environment], None]

UNARY = {
    "negative": np.negative,
    "tanh": np.tanh,
    "permute": lambda x: x.reshape(2, 2).T.reshape(4),
}
BINARY = {
    "add": lambda a, b: np.tanh(a + b),
    "multiply": np.multiply,
    "matmul": lambda a, b: np.tanh(a.reshape(2, 2) @ b.reshape(2, 2)).reshape(4),
}


@dataclass
class Program:
    """A function of two tensors, a condition and a number of rounds, and its meaning."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    count: int = 0
    depth: int = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append("  " * (self.depth + 1) + line)

    def block(self, names: list[str], length: int) -> tuple[list[str], Run]:
        """Operations after each other; `names` are the tensors that they may read."""
        known, runs = list(names), []
        for _ in range(length):
            makers = [self.unary, self.unary, self.binary, self.binary]
            if self.depth < 3:
                makers += [self.branch, self.counted, self.repeated]
            made, run = self.random.choice(makers)(known)
            known += made
            runs.append(run)

        def all_of(env: Environment) -> None:
            for run in runs:
                run(env)

        return known, all_of

    def pick(self, names: list[str]) -> str:
        """One of the tensors, more often a late one."""
        return self.random.choice(names[-4:] if self.random.random() < 0.7 else names)

    def reshaped(self, name: str) -> str:
        made = self.name()
        self.emit(f'{made} = "relax.reshape"({name}) {{shape = [2, 2]}} : ({KIND}) -> tensor<2x2xf32>')
        return made

    def flat(self, name: str) -> str:
        made = self.name()
        self.emit(f'{made} = "relax.reshape"({name}) {{shape = [4]}} : (tensor<2x2xf32>) -> {KIND}')
        return made

    def unary(self, names: list[str]) -> tuple[list[str], Run]:
        operator, x = self.random.choice(list(UNARY)), self.pick(names)
        if operator == "permute":
            square, transposed = self.reshaped(x), self.name()
            kind = "tensor<2x2xf32>"
            self.emit(f'{transposed} = "relax.permute"({square}) {{axes = array<i64: 1, 0>}} : ({kind}) -> {kind}')
            made = self.flat(transposed)
        else:
            made = self.name()
            self.emit(f'{made} = "relax.{operator}"({x}) : ({KIND}) -> {KIND}')
        return [made], lambda env: env.update({made: UNARY[operator](env[x])})

    def binary(self, names: list[str]) -> tuple[list[str], Run]:
        operator, x, y = self.random.choice(list(BINARY)), self.pick(names), self.pick(names)
        made = self.name()
        if operator == "matmul":
            a, b, kind = self.reshaped(x), self.reshaped(y), "tensor<2x2xf32>"
            product = self.name()
            self.emit(f'{product} = "relax.matmul"({a}, {b}) : ({kind}, {kind}) -> {kind}')
            self.emit(f'{made} = "relax.tanh"({self.flat(product)}) : ({KIND}) -> {KIND}')
        elif operator == "add":
            total = self.name()
            self.emit(f'{total} = "relax.add"({x}, {y}) : ({KIND}, {KIND}) -> {KIND}')
            self.emit(f'{made} = "relax.tanh"({total}) : ({KIND}) -> {KIND}')
        else:
            self.emit(f'{made} = "relax.{operator}"({x}, {y}) : ({KIND}, {KIND}) -> {KIND}')
        return [made], lambda env: env.update({made: BINARY[operator](env[x], env[y])})

    def results(self) -> tuple[list[str], str, str]:
        """Names of some results, the operation's left side, and their types."""
        count = self.random.randint(1, 3)
        base = self.name()
        names = [f"{base}#{i}" for i in range(count)] if count > 1 else [base]
        return names, f"{base}:{count}" if count > 1 else base, ", ".join([KIND] * count)

    def body(self, names: list[str], count: int) -> tuple[list[str], Run]:
        """Return the operations of a region and the tensors that it yields."""
        self.depth += 1
        known, run = self.block(names, self.random.randint(0, 4))
        given = [self.pick(known) for _ in range(count)]
        self.depth -= 1
        return given, run

    def yields(self, given: list[str]) -> None:
        self.emit(f"  scf.yield {', '.join(given)} : {', '.join([KIND] * len(given))}")

    def branch(self, names: list[str]) -> tuple[list[str], Run]:
        made, left, types = self.results()
        self.emit(f"{left} = scf.if %flag -> ({types}) {{")
        then, run_then = self.body(names, len(made))
        self.yields(then)
        self.emit("} else {")
        other, run_other = self.body(names, len(made))
        self.yields(other)
        self.emit("}")

        def run(env: Environment) -> None:
            chosen, given = (run_then, then) if env["%flag"] else (run_other, other)
            chosen(env)
            env.update(dict(zip(made, [env[name] for name in given], strict=True)))

        return made, run

    def counted(self, names: list[str]) -> tuple[list[str], Run]:
        made, left, types = self.results()
        inits, carried = [self.pick(names) for _ in made], [self.name() for _ in made]
        pairs = ", ".join(f"{a} = {b}" for a, b in zip(carried, inits, strict=True))
        self.emit(f"{left} = scf.for {self.name()} = %zero to %rounds step %one iter_args({pairs}) -> ({types}) {{")
        given, run_body = self.body([*names, *carried], len(made))
        self.yields(given)
        self.emit("}")

        def run(env: Environment) -> None:
            values = [env[name] for name in inits]
            for _ in range(int(env["%n"])):
                env.update(zip(carried, values, strict=True))
                run_body(env)
                values = [env[name] for name in given]
            env.update(zip(made, values, strict=True))

        return made, run

    def repeated(self, names: list[str]) -> tuple[list[str], Run]:
        """Return a loop whose condition is a tensor that it carries: the number of remaining iterations."""
        made, left, types = self.results()
        inits = [self.pick(names) for _ in made]
        before, after = ([self.name() for _ in made] for _ in range(2))
        passed = [self.random.choice(before) for _ in made]
        counter, inner, total = self.name(), self.name(), left.split(":")[0]
        made = [f"{total}#{i}" for i in range(len(made))]
        number = "tensor<i64>"
        pairs = ", ".join(f"{a} = {b}" for a, b in zip([*before, counter], [*inits, "%n"], strict=True))
        kinds = f"{types}, {number}"
        self.emit(f"{total}:{len(made) + 1} = scf.while ({pairs}) : ({kinds}) -> ({kinds}) {{")
        flag, zero, scalar = self.name(), self.name(), self.name()
        self.emit(f'  {zero} = "relax.constant"() {{value = dense<0> : {number}}} : () -> {number}')
        self.emit(f'  {flag} = "relax.greater"({counter}, {zero}) : ({number}, {number}) -> tensor<i1>')
        self.emit(f"  {scalar} = tensor.extract {flag}[] : tensor<i1>")
        self.emit(f"  scf.condition({scalar}) {', '.join([*passed, counter])} : {kinds}")
        self.emit("} do {")
        arguments = ", ".join([*(f"{name}: {KIND}" for name in after), f"{inner}: {number}"])
        self.emit(f"^bb0({arguments}):")
        given, run_body = self.body([*names, *after], len(made))
        one, less = self.name(), self.name()
        self.emit(f'  {one} = "relax.constant"() {{value = dense<1> : {number}}} : () -> {number}')
        self.emit(f'  {less} = "relax.subtract"({inner}, {one}) : ({number}, {number}) -> {number}')
        self.emit(f"  scf.yield {', '.join([*given, less])} : {kinds}")
        self.emit("}")

        def run(env: Environment) -> None:
            values, going = [env[name] for name in inits], int(env["%n"])
            while True:
                env.update(zip(before, values, strict=True))
                passed_on = [env[name] for name in passed]
                if going <= 0:
                    break
                env.update(zip(after, passed_on, strict=True))
                run_body(env)
                values = [env[name] for name in given]
                going -= 1
            env.update(zip(made, passed_on, strict=True))

        return made, run


def random_program(seed: int) -> tuple[str, Callable[..., list[np.ndarray]]]:
    """Return the text of a module, and a function of the four inputs that computes its results."""
    program = Program(random.Random(seed))
    known, run = program.block(["%x", "%y"], program.random.randint(3, 9))
    returned = [program.pick(known) for _ in range(program.random.randint(1, 4))]
    inputs = f'%x: {KIND} {{relax.name = "x"}}, %y: {KIND} {{relax.name = "y"}}'
    inputs += ', %c: tensor<i1> {relax.name = "c"}, %n: tensor<i64> {relax.name = "n"}'
    types = ", ".join([KIND] * len(returned))
    text = "\n".join(
        [
            f"func.func @main({inputs}) -> ({types}) {{",
            "  %flag = tensor.extract %c[] : tensor<i1>",
            "  %zero = arith.constant 0 : index",
            "  %one = arith.constant 1 : index",
            "  %rounds_i64 = tensor.extract %n[] : tensor<i64>",
            "  %rounds = arith.index_cast %rounds_i64 : i64 to index",
            *program.lines,
            f"  return {', '.join(returned)} : {types}",
            "}",
        ]
    )

    def meaning(x: np.ndarray, y: np.ndarray, flag: np.ndarray, rounds: np.ndarray) -> list[np.ndarray]:
        env = {"%x": x, "%y": y, "%flag": flag, "%n": rounds}
        run(env)
        return [env[name] for name in returned]

    return text, meaning
