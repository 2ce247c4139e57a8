"""The kernel of decision trees whose upper levels are masks: 16 rows in vectors, few rows one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.value import Value, compare, create, emit_constant, select
from mirlo.dialects.relax.tree import NAN_BY_NODE
from mirlo.dialects.tir.compute import BOOL, INDEX, Buffer, Expr, LoopBuilder, LoopFunction, constant, minimum
from mirlo.dialects.tir.compute import select as select_value
from mirlo.dialects.tir.compute.narrow import as_expr, emit
from mirlo.passes.legalize.rules.tree import bounded, compared, descent_loop, first_score
from mirlo.passes.schedule.loops import for_loop
from mirlo.passes.schedule.vectors import flat, lane_mask, splat
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.intrinsics.x86 import call_permute
from mirlo.targets.llvm.legalize.trees import LANES, TreeDescent
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.trees.layout import BITS, BLOCK, NAN_HOLDS

GROUPS = (64, 16)
"""Rows that are computed together: as many as amortize the loads of a node, then those of a vector of AVX-512."""
MIN_ROWS = 6
"""Fewest rows for which vectors are faster than one row after the other."""
L1_BYTES = 32 * 1024
"""Most bytes of the features and scores of 64 rows, which are on the stack and stay in the L1 cache."""
MAX_BYTES = 128 * 1024
"""Most bytes of those of 16 rows, a part of the L2 cache; more than L1_BYTES are in the workspace."""
_FAILS = (("ugt", "gt"), ("uge", "ge"), ("ult", "lt"), ("ule", "le"), ("ne", "one"), ("eq", "eq"))
"""Of each comparison, the ones that hold where it fails: NaN fails, or it holds. A NaN differs from everything."""


@dataclass(frozen=True)
class MaskedTrees:
    """An ensemble of trees, as a kernel needs to know it."""

    x: TensorType
    columns: int
    """Features that are compared."""
    blocks: int
    """Blocks of records of the nodes of the upper levels."""
    trees: int
    words: int
    """Words of masks of all trees."""
    leaves: int
    targets: int
    mode: int
    aggregate: str
    lower: int
    """Nodes below the upper levels."""
    nodes: TensorType
    """Type of the table of all nodes."""
    roots: TensorType
    depth: int
    """Nodes of the longest path, 0 if it is unknown."""

    @property
    def rows(self) -> Dim:
        return self.x.shape[0]

    @property
    def reaches_leaves(self) -> bool:
        """Return whether all exits of the upper levels are leaves."""
        return self.lower == 0

    @property
    def padded_columns(self) -> int:
        """Return the columns of a group's features: a power of two, so that a mask bounds their numbers."""
        return 1 << (self.columns - 1).bit_length()

    def scratch_bytes(self, rows: int) -> int:
        """Return the bytes of scratch memory of a group of rows."""
        return 4 * rows * (self.padded_columns + self.targets + 1)

    @property
    def groups(self) -> list[int]:
        """Return the numbers of rows that are computed together, the largest first."""
        limits = dict(zip(GROUPS, (L1_BYTES, MAX_BYTES), strict=True))
        fit = [rows for rows in GROUPS if self.scratch_bytes(rows) <= limits[rows]]
        return [rows for rows in fit if not isinstance(self.rows, int) or self.rows >= rows or rows == GROUPS[-1]]

    @property
    def groups_of_nodes(self) -> int:
        """Return the groups of nodes of a tree: those for which NaN fails and holds are compared differently."""
        return 2 if self.mode & NAN_BY_NODE else 1

    @property
    def inputs(self) -> list[TensorType]:
        """Return the types of the operands: those of `relax.tree_ensemble` and the upper levels."""
        exits = (self.words * BITS * (self.targets if self.reaches_leaves else 1),)
        return [
            self.x,
            TensorType.of((self.nodes.shape[0],), "f32"),
            self.nodes,
            self.roots,
            TensorType.of((self.leaves, self.targets), "f32"),
            TensorType.of((self.columns,), "i32"),
            TensorType.of((self.blocks * BLOCK * 3,), "i32"),
            TensorType.of((self.words * self.groups_of_nodes + 1,), "i32"),
            TensorType.of((self.trees + 1,), "i32"),
            TensorType.of(exits, "f32" if self.reaches_leaves else "i32"),
            *([] if self.reaches_leaves else [TensorType.of((self.lower * 4,), "i32")]),
        ]

    @property
    def result(self) -> TensorType:
        return TensorType.of((self.rows, self.targets), "f32")


def lanes_of(machine: Machine) -> int:
    """Return the rows of a vector."""
    return min(GROUPS[-1], machine.lanes(4))


def trees_function(trees: MaskedTrees, machine: Machine, loc: ir.Location) -> ir.OpView:
    """Build the kernel, in buffer form."""
    function = LoopFunction("tree_ensemble_masks", trees.inputs, [trees.result], loc)
    return function.build(lambda loops, *buffers: _add_all(trees, machine, loops, *buffers))


def _add_all(trees: MaskedTrees, machine: Machine, loops: LoopBuilder, *buffers: Buffer) -> None:
    """Compute the rows in groups, the last of which may be filled up, and the remaining ones one by one."""
    *operands, output = buffers
    tables = Tables(*operands, output=output)
    done: Dim = 0
    for count in trees.groups:
        group = _Group(trees, machine, loops, tables, count)
        filled = count - MIN_ROWS if count == GROUPS[-1] else 0
        groups = (trees.rows - done + filled) // count
        for (number,) in loops.nest((groups,), parallel=True):
            group.add_rows(loops.let(number * count + constant(done, INDEX)))
        done = done + groups * count
    for row in loops.range(minimum(constant(done, INDEX), constant(trees.rows, INDEX)), trees.rows):
        tables.descent(loops, trees).add_row(row, trees.trees)


@dataclass(frozen=True)
class Tables:
    """The operands and the result of the kernel."""

    x: Buffer
    thresholds: Buffer
    nodes: Buffer
    roots: Buffer
    weights: Buffer
    columns: Buffer
    records: Buffer
    starts: Buffer
    words: Buffer
    exits: Buffer
    lower: Buffer | None = None
    """None if all exits are leaves."""
    output: Buffer = field(kw_only=True)

    def descent(self, loops: LoopBuilder, trees: MaskedTrees) -> TreeDescent:
        """Return the loops from node to node."""
        operands = (self.x, self.thresholds, self.nodes, self.roots, self.weights, self.output)
        return TreeDescent(loops, *operands, trees.mode, trees.aggregate, trees.depth)


class _Group:
    """The loops of a group of rows."""

    def __init__(self, trees: MaskedTrees, machine: Machine, loops: LoopBuilder, tables: Tables, rows: int):
        self.trees, self.machine, self.loops, self.tables, self.rows = trees, machine, loops, tables, rows
        self.lanes = lanes_of(machine)
        memory = loops.alloca if trees.scratch_bytes(rows) <= L1_BYTES else loops.scratch
        self.features = memory((rows * trees.padded_columns,), DTYPES["f32"])
        self.scores = loops.alloca((trees.targets, rows), DTYPES["f32"])
        self.reached = loops.alloca((rows,), DTYPES["i32"])

    def add_rows(self, first: Expr) -> None:
        """Compute a group of rows; rows after the last one are the last one."""
        loops, trees, tables = self.loops, self.trees, self.tables
        for lane in loops.range(self.rows):
            row, place = self.row(first, lane), self.place_of(lane)
            for column in loops.range(trees.columns):
                feature = bounded(tables.columns[column], trees.x.shape[1])
                self.features[place + column * self.lanes] = tables.x[row, feature]
        for target in loops.range(trees.targets):
            for lane in loops.range(self.rows):
                self.scores[target, lane] = first_score(trees.aggregate, self.scores.dtype)
        for tree in loops.range(trees.trees):
            self.add_tree(emit(tree), first)
        for lane in loops.range(minimum(constant(self.rows, INDEX), constant(trees.rows, INDEX) - first)):
            for target in loops.range(trees.targets):
                tables.output[first + lane, target] = self.scores[target, lane]

    def row(self, first: Expr, lane: Expr) -> Expr:
        """Return the row of a lane."""
        return self.loops.let(minimum(first + lane, constant(self.trees.rows - 1, INDEX)))

    def place_of(self, lane: Expr) -> Expr:
        """Return the place of the first feature of a lane: vectors hold a feature of adjacent rows."""
        vector = lane // self.lanes * (self.trees.padded_columns * self.lanes)
        return self.loops.let(vector + lane % self.lanes)

    def add_tree(self, tree: ir.Value, first: Expr) -> None:
        """Add the values of a tree's leaves to the scores of a group of rows."""
        trees = self.trees
        if trees.reaches_leaves and trees.words == trees.trees:
            taken = [self.first_exit(masks) for masks in self.masks_of(tree)]
            self.add_values(lambda target: self.looked_up((Value(tree) * trees.targets + target) * BITS, taken))
            return
        places = self.exits_of(tree)
        table = flat(self.tables.exits.value)
        if trees.reaches_leaves:
            self.add_values(lambda target: [self.gather(table, target * BITS, place) for place in places])
            return
        zero = emit(constant(0, INDEX))
        nodes = [self.gather(table, zero, place) for place in places]
        for at, node in zip(self.vectors(), nodes, strict=True):
            self.store(node, self.reached, at)
        with self.loops.if_(as_expr(self.any_inner(nodes), BOOL)):
            self.descend(first)
        last = emit_constant(trees.leaves - 1, self.vector_type("i32"))
        leaves = []
        for at in self.vectors():
            node = create("vector.load", last.type, self.reached.value, at)
            leaf = create("arith.minui", last.type, emit_constant(-1, last.type) - node, last)
            leaves.append(leaf * trees.targets if trees.targets > 1 else leaf)
        weights = flat(self.tables.weights.value)
        self.add_values(lambda target: [self.gather(weights, target, leaf) for leaf in leaves])

    def any_inner(self, nodes: Sequence[ir.Value]) -> ir.Value:
        """Return whether one of some nodes is not a leaf."""
        is_inner = nodes[0]
        for node in nodes[1:]:
            is_inner = create("arith.maxsi", is_inner.type, is_inner, node)
        kind = ir.Attribute.parse("#vector.kind<maxsi>")
        largest = create("vector.reduction", ir.IntegerType.get_signless(32), is_inner, kind=kind)
        return compare("ge", largest, 0)

    def descend(self, first: Expr) -> None:
        """Descend from the nodes that the rows reached to leaves, all by one level in each iteration."""
        loops = self.loops
        for begin in loops.range(0, self.rows, LANES):
            base = self.place_of(begin)
            lanes = [loops.variable(self.reached[begin + lane], "i32") for lane in range(LANES)]
            leaves = loops.variable(0, "i32")
            limit = self.trees.depth or self.trees.lower
            for _ in descent_loop(loops, leaves.get, limit):
                result = constant(-1, "i32")
                for number, lane in enumerate(lanes):
                    at = loops.let(lane.get())
                    following = loops.let(self.next_node(base, number, at))
                    # Negative if either is a leaf. As all lanes need the node, LLVM does not load it in a branch.
                    result = result & (at | following)
                    lane.set(select_value(at >= 0, following, at))
                leaves.set(result)
            for number, lane in enumerate(lanes):
                self.reached[begin + number] = lane.get()

    def next_node(self, base: Expr, lane: int, at: Expr) -> Expr:
        """Return the node after an inner one, any after a leaf, for the row that is `lane` rows after the base."""
        loops, trees, lower = self.loops, self.trees, self.tables.lower
        assert lower is not None
        node = loops.let(bounded(at, trees.lower) * 4)
        record = loops.let(lower[node])
        vectors, within = divmod(lane, self.lanes)
        size = trees.padded_columns * self.lanes
        place = (record & constant(size - self.lanes, "i32")).cast(INDEX) + base + (vectors * size + within)
        value = loops.let(self.features[place])
        # The comparison that holds for NaN has bit 8, which is the highest bit of a record.
        how = (record.bitcast("u32") >> 28).bitcast("i32") if trees.mode & NAN_BY_NODE else constant(0, "i32")
        holds = compared(value, loops.let(lower[node + 1].bitcast("f32")), how, trees.mode)
        return lower[node + (constant(3, "i32") - holds.cast("i32")).cast(INDEX)]

    def exits_of(self, tree: ir.Value) -> list[ir.Value]:
        """Return the places of the exits that the rows take in the table of exits, in vectors."""
        trees = self.trees
        place = as_expr(tree, INDEX)
        low, high = (emit(bounded(self.tables.words[place + i], trees.words + 1)) for i in range(2))
        stride = BITS * (trees.targets if trees.reaches_leaves else 1)

        def word(number: ir.Value, *places: ir.Value) -> list[ir.Value]:
            start = splat(Value(Value(number) * stride).cast(ir.IntegerType.get_signless(32)), self.lanes)
            result: list[ir.Value] = []
            for place, mask in zip(places, self.masks_of(number), strict=True):
                is_here = compare("ne", mask, emit_constant(0, mask.type))
                result.append(select(is_here, Value(start) + self.first_exit(mask), place))
            return result

        kind = self.vector_type("i32")
        places = for_loop(low, high, 1, word, [emit_constant(0, kind) for _ in self.vectors()])
        # That no word but those of the table is read follows from the tables, which are data.
        last = emit_constant((trees.words - 1) * stride + BITS - 1, kind)
        return [create("arith.minui", kind, place, last) for place in places]

    def masks_of(self, word: ir.Value) -> list[ir.Value]:
        """Return the exits of a word that remain after the comparisons of all nodes, in vectors."""
        groups = self.trees.groups_of_nodes
        masks: list[ir.Value] = [emit_constant(-1, self.vector_type("i32")) for _ in self.vectors()]
        for group in range(groups):
            place = as_expr(Value(word) * groups + group, INDEX)
            low, high = (bounded(self.tables.starts[place + i], self.trees.blocks + 1) for i in range(2))
            predicate = self.predicate(group)

            def block(number: ir.Value, *initial: ir.Value, predicate: str = predicate) -> list[ir.Value]:
                masks = list(initial)
                for i in range(BLOCK):
                    masks = self.masked((Value(number) * BLOCK + i) * 3, predicate, masks)
                return masks

            masks = for_loop(emit(low), emit(high), 1, block, masks)
        return masks

    def first_exit(self, mask: ir.Value) -> ir.Value:
        """Return the number of the first exit in a mask, 0 to 31."""
        return create(
            "arith.minui", mask.type, create("math.ctlz", mask.type, mask), emit_constant(BITS - 1, mask.type)
        )

    def predicate(self, group: int) -> str:
        """Return the comparison that holds where the nodes of a group fail; NaN fails or holds for all of them."""
        mode = self.trees.mode
        nan_holds = group == 1 if mode & NAN_BY_NODE else mode & NAN_HOLDS != 0
        return _FAILS[mode & 7][nan_holds]

    def masked(self, at: Value, predicate: str, masks: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the exits that remain after the comparison of the record at a place."""
        column, threshold, left = (emit(self.tables.records[as_expr(at + i, INDEX)]) for i in range(3))
        bound = create("arith.bitcast", ir.F32Type.get(), threshold)
        # A mask bounds the place, whatever the record holds.
        place = (Value(column) & self.lanes * (self.trees.padded_columns - 1)).cast(ir.IndexType.get())
        result: list[ir.Value] = []
        for vector, mask in enumerate(masks):
            at_vector = place + vector * self.trees.padded_columns * self.lanes
            x = create("vector.load", self.vector_type("f32"), self.features.value, at_vector)
            fails = compare(predicate, x, splat(bound, self.lanes))
            result.append(select(fails, Value(mask) & splat(left, self.lanes), mask))
        return result

    def add_values(self, values_of: Callable[[Value], Sequence[ir.Value]]) -> None:
        """Add vectors of values to the scores of all targets."""
        for (target,) in self.loops.nest((self.trees.targets,)):
            at_target = Value(emit(target))
            for at, value in zip(self.vectors(), values_of(at_target), strict=True):
                self.add_score(at_target, at, value)

    def add_score(self, target: ir.Value, at: ir.Value, value: ir.Value) -> None:
        kind = self.vector_type("f32")
        score = create("vector.load", kind, self.scores.value, target, at)
        if self.trees.aggregate == "sum":
            self.store(score + value, self.scores, target, at)
            return
        is_better = compare("lt" if self.trees.aggregate == "min" else "gt", value, score)
        self.store(select(is_better, value, score), self.scores, target, at)

    # Vectors

    def vectors(self) -> list[ir.Value]:
        """Return the first rows of the vectors of a group."""
        return [emit(constant(at, INDEX)) for at in range(0, self.rows, self.lanes)]

    def vector_type(self, element: str) -> ir.Type:
        return ir.VectorType.get([self.lanes], ir.Type.parse(element))

    def store(self, value: ir.Value, buffer: Buffer, *at: ir.Value) -> None:
        ir.Operation.create("vector.store", operands=[value, buffer.value, *at])

    def gather(self, table: ir.Value, start: ir.Value, places: ir.Value) -> ir.Value:
        """Return the elements at some places after the start."""
        kind = ir.VectorType.get([self.lanes], table.type.element_type)
        return create(
            "vector.gather", kind, table, start, places, lane_mask(self.lanes, self.lanes), emit_constant(0, kind)
        )

    def looked_up(self, start: Value, places: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the values at places, 0 to 31, after the start."""
        table = flat(self.tables.exits.value)
        if not self.machine.avx512 or self.lanes != 16:
            return [self.gather(table, start, place) for place in places]
        halves = [create("vector.load", self.vector_type("f32"), table, start + half) for half in (0, 16)]
        result: list[ir.Value] = []
        for place in places:
            low, high = (call_permute(half, place) for half in halves)
            result.append(select(compare("ult", place, emit_constant(16, place.type)), low, high))
        return result
