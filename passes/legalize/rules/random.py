"""Default rules of random values: MT19937, sequentially."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import Expr, LoopBuilder, Variable, constant, log, select, sqrt
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import shape_of
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

STATE, MIDDLE = 624, 397
UPPER, LOWER = 0x80000000, 0x7FFFFFFF
TWIST = 0x9908B0DF


class MersenneTwister:
    """The state of the generator in scratch memory."""

    def __init__(self, loops: LoopBuilder, seed: Expr):
        self.loops = loops
        self.state = loops.scratch((STATE,), "u32")
        self.at = loops.variable(STATE, "index")
        word = loops.variable(seed.cast("i64").cast("u32"), "u32")
        for i in loops.range(STATE):
            self.state[i] = word.get()
            mixed = loops.let(word.get() ^ (word.get() >> 30))
            word.set(mixed * 1812433253 + (i + 1).cast("i64").cast("u32"))

    def _refill(self) -> None:
        for i in self.loops.range(STATE):
            after = self.loops.let(select((i + 1).equals(STATE), constant(0, "index"), i + 1))
            far = self.loops.let((i + MIDDLE) % STATE)
            mixed = self.loops.let((self.state[i] & UPPER) | (self.state[after] & LOWER))
            odd = (mixed & 1).equals(1)
            zero = constant(0, "u32")
            self.state[i] = self.state[far] ^ (mixed >> 1) ^ select(odd, constant(TWIST, "u32"), zero)
        self.at.set(0)

    def word(self) -> Expr:
        """Return the next 32 bits."""
        with self.loops.if_(self.at.get() >= STATE):
            self._refill()
        y = self.loops.let(self.state[self.at.get()])
        self.at.set(self.at.get() + 1)
        y = self.loops.let(y ^ (y >> 11))
        y = self.loops.let(y ^ ((y << 7) & 0x9D2C5680))
        y = self.loops.let(y ^ ((y << 15) & 0xEFC60000))
        return self.loops.let(y ^ (y >> 18))

    def uniform(self) -> Expr:
        """Return the next value in [0, 1), with 53 bits."""
        high, low = (self.word() >> 5).cast("f64"), (self.word() >> 6).cast("f64")
        return self.loops.let((high * 67108864.0 + low) / 9007199254740992.0)


@legalize("relax.random_uniform")
def random_uniform(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    def body(loops: LoopBuilder, seed: Buffer, output: Buffer) -> None:
        twister = MersenneTwister(loops, seed[()])
        for at in loops.nest(shape_of(op.output)):
            output[at] = (twister.uniform() * (op.high - op.low) + op.low).cast(output.dtype)

    return b.call_loops(body, op.seed)


def _is_outside(square: Variable) -> Expr:
    return (square.get() >= 1.0) | square.get().equals(0.0)


@legalize("relax.random_normal")
def random_normal(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Use the polar method: a point in the unit circle produces two values; the second is cached."""

    def body(loops: LoopBuilder, seed: Buffer, output: Buffer) -> None:
        twister = MersenneTwister(loops, seed[()])
        has_spare = loops.variable(False, "bool")
        spare, drawn = loops.variable(0.0, "f64"), loops.variable(0.0, "f64")
        for at in loops.nest(shape_of(op.output)):
            with loops.if_(has_spare.get()):
                drawn.set(spare.get())
                has_spare.set(False)
            with loops.else_():
                first, second = loops.variable(0.0, "f64"), loops.variable(0.0, "f64")
                square = loops.variable(2.0, "f64")
                for _ in loops.while_(partial(_is_outside, square)):
                    first.set(twister.uniform() * 2.0 - 1.0)
                    second.set(twister.uniform() * 2.0 - 1.0)
                    square.set(first.get() * first.get() + second.get() * second.get())
                stretch = loops.let(sqrt(log(square.get()) * -2.0 / square.get()))
                spare.set(stretch * first.get())
                has_spare.set(True)
                drawn.set(stretch * second.get())
            output[at] = (drawn.get() * op.scale + op.mean).cast(output.dtype)

    return b.call_loops(body, op.seed)
