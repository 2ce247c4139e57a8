"""The unit's instructions as commands, and its simulator, which is generic in its numbers."""

import mirlo
from mirlo import T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import CommandProgram, Schedule, command_intrin
from mirlo_npu.rules import TILE

ROWS, COLUMNS = T.dims("ROWS", "COLUMNS")
SCRATCH, WEIGHTS, SUMS = "npu.scratch", "npu.weights", "npu.sums"


class Simulator:
    """What each command does to memories; `execute` is what instructions are declared with."""

    def execute(self, command, memory):
        getattr(self, command.name.removeprefix("npu."))(command, memory)

    def copy(self, command, memory):
        memory.write(command.writes[0], command.extents, memory.read(command.reads[0], command.extents))

    load = load_weights = store = copy

    def multiply(self, command, memory):
        x, weights = (memory.read(tile, command.extents) for tile in command.reads)
        products = (x * weights).sum(-1, keepdims=True)
        if not command.is_first:
            products = products + memory.read(command.writes[0], command.extents)
        memory.write(command.writes[0], command.extents, products)


SIMULATOR = Simulator()


def execute(command, memory):
    SIMULATOR.execute(command, memory)


@mirlo.prim_func
def copy(x: T.Buffer[(ROWS, COLUMNS), T.f32], y: T.Out[(ROWS, COLUMNS), T.f32]):
    for i, j in T.grid(ROWS, COLUMNS):
        y[i, j] = x[i, j]


@mirlo.prim_func
def load(x: T.Buffer[(ROWS, COLUMNS), T.f32], y: T.Out[(ROWS, COLUMNS), T.f32]):
    for i, j in T.grid(ROWS, COLUMNS):
        y[i, j] = x.at(i - 1, j, outside=0)


@mirlo.prim_func
def multiply(x: T.Buffer[(ROWS, TILE), T.f32], w: T.Buffer[(TILE, TILE), T.f32], y: T.Out[(ROWS, TILE), T.f32]):
    for i, j, k in T.grid(ROWS, TILE, TILE):
        with T.block("multiply"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                y[vi, vj] = 0
            y[vi, vj] += x[vi, vk] * w[vk, vj]


INSTRUCTIONS = (
    command_intrin("npu.load", load, {"x": "", "y": SCRATCH}, execute),
    command_intrin("npu.load_weights", copy, {"x": "", "y": WEIGHTS}, execute),
    command_intrin("npu.multiply", multiply, {"x": SCRATCH, "w": WEIGHTS, "y": SUMS}, execute),
    command_intrin("npu.store", copy, {"x": SUMS, "y": ""}, execute),
)


@mirlo.prim_func
def shifted_product(x: T.Buffer[(10, 8), T.f32], w: T.Buffer[(8, 12), T.f32], y: T.Out[(10, 12), T.f32]):
    rows = T.alloc((10, 8), "f32")
    sums = T.alloc((10, 12), "f32")
    for i, j in T.grid(10, 8):
        with T.block("load"):
            vi, vj = T.axes("SS", i, j)
            rows[vi, vj] = x.at(vi - 1, vj, outside=0)
    for i, j, k in T.grid(10, 12, 8):
        with T.block("multiply"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                sums[vi, vj] = 0
            sums[vi, vj] += rows[vi, vk] * w[vk, vj]
    for i, j in T.grid(10, 12):
        with T.block("store"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = sums[vi, vj]


def program(tile=TILE):
    """Return the commands of a product, in tiles of rows of which the last one is smaller."""
    s = Schedule.of(shifted_product, TensorType.of((10, 8), "f32"), TensorType.of((8, 12), "f32"))
    weights = s.cache_read("multiply", "w", WEIGHTS)
    rows, _, depth, inside, *_ = s.tile(s.loops("multiply"), (tile, TILE, TILE))
    s.compute_at("load", rows)
    s.compute_at(weights, depth)
    s.reverse_compute_at("store", rows)
    s.set_scope("rows", SCRATCH)
    s.set_scope("sums", SUMS)
    s.tensorize(inside, "npu.multiply")
    for block, name in (("load", "npu.load"), (weights, "npu.load_weights"), ("store", "npu.store")):
        s.tensorize(s.loops(block)[-2], name)
    return CommandProgram("npu.product", s)
