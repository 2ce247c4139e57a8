"""Patterns of prim functions, matched after legalization by what their blocks compute.

product = contraction(wildcard(), is_const(), axes="mk,kn->mn", dtype="i8", multiples={"m": 16, "n": 16, "k": 64})
elementwise(product, ops={"arith.maximumf"})

A target with an instruction for a small product matches loops instead of operators, so that it is offered every
operator that became such a product. Patterns of blocks and of operators may be mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.tir.view import BlockView, PrimView, is_prim_func, is_tensor_form
from mirlo.passes.byoc.graph import BlockNode, BlockValue
from mirlo.passes.byoc.operators import OpPattern, solve_all
from mirlo.passes.byoc.pattern import Pattern
from mirlo.passes.byoc.search import PatternError, Predicate, Search, State
from mirlo.passes.fuse.kinds import FusionKind, block_kind, is_multiply_add
from mirlo.passes.rules import Decline, decline

CALL = "relax.call_tir"
CASTS = ("arith.ext", "arith.trunc", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.constant")
"""Prefixes of operations that compute nothing."""

Extents = Mapping[str, "int | Callable[[int], object]"]
Accept = Callable[[BlockNode, PrimView], "Sequence[int] | Decline"]
"""Returns the operands of a call that the patterns apply to, or why the prim function does not match."""


class PrimPattern(OpPattern):
    """A pattern of a call of a prim function; without patterns of operands it matches any."""

    in_order = True

    def __init__(self, what: str, accept: Accept, operands: Sequence[Pattern]):
        super().__init__((CALL,))
        self.what = what
        self.accept = accept
        self.operands = tuple(operands)

    @property
    def expected(self) -> str:
        return self.what

    def _fits(self, node: BlockNode, value: BlockValue, state: State, search: Search) -> bool:
        if not super()._fits(node, value, state, search):
            return False
        order = self._order(node, search)
        if isinstance(order, Decline):
            search.fail(state, value, order, predicate=self.what)
            return False
        return True

    def _order(self, node: BlockNode, search: Search) -> Sequence[int] | Decline:
        key = id(self), node.index
        result: Sequence[int] | Decline | None = search.answers.get(key)
        if result is None:
            view = prim_of(node)
            result = (
                decline("its prim function has no blocks over tensors") if view is None else self.accept(node, view)
            )
            search.answers[key] = result
        return result

    def _operand_matches(self, node: BlockNode, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        order = self._order(node, search)
        assert not isinstance(order, Decline)
        if self.operands and self.in_order and len(order) != len(self.operands):
            mismatch = decline(f"expected {len(self.operands)} operands", found=len(order))
            search.fail(state, value, mismatch, predicate=self.what)
            return
        yield from self.solve_operands([node.operands[i] for i in order], state, search)

    def solve_operands(self, values: list[BlockValue], state: State, search: Search) -> Iterator[State]:
        if not self.operands:
            yield state
            return
        yield from solve_all(list(zip(self.operands, values, strict=True)), state, search)


def prim_of(node: BlockNode) -> PrimView | None:
    """Return the prim function that a node calls, in tensor form."""
    symbols = ir.SymbolTable(enclosing(node.op, "builtin.module"))
    name = node.op.opview.callee
    function = symbols[name] if name in symbols else None  # noqa: SIM401 (it has no get)
    if function is None or not is_prim_func(function) or not is_tensor_form(function) or not function.regions[0].blocks:
        return None
    return PrimView(function)


def is_call_tir(name: str = "*", *operands: Pattern) -> PrimPattern:
    """Return a pattern of a call of a prim function by name, which may have wildcards (`matmul*`), and its operands."""

    def accept(node: BlockNode, view: PrimView) -> Sequence[int] | Decline:
        if not fnmatchcase(view.name, name):
            return decline(f"expected a prim function '{name}'", found=view.name)
        return range(len(node.operands))

    return PrimPattern(f"call_tir {name}", accept, operands)


def elementwise(*operands: Pattern, ops: Collection[str] | None = None) -> PrimPattern:
    """Return a pattern of an elementwise prim function.

    `ops` are the operations that its bodies may use, such as `arith.maximumf`. The operands are patterns of some of
    the call's operands in any order.
    """

    def accept(node: BlockNode, view: PrimView) -> Sequence[int] | Decline:
        for block in view.blocks:
            if block_kind(block) > FusionKind.BROADCAST:
                return decline(f"block '{block.name}' is not elementwise", kind=block_kind(block).label)
        return _allowed(view.blocks, ops) or range(len(node.operands))

    return _AnyOrder("an elementwise prim function", accept, operands)


class _AnyOrder(PrimPattern):
    """Operand patterns that match distinct operands in any order."""

    in_order = False

    def solve_operands(self, values: list[BlockValue], state: State, search: Search) -> Iterator[State]:
        patterns = self.operands or ()
        if not patterns:
            yield state
        first, *rest = patterns or (None,)
        for i, value in enumerate(values if first is not None else ()):
            left = [v for j, v in enumerate(values) if j != i]
            for solution in first.solve(value, state, search):  # type: ignore[union-attr]
                if rest:
                    yield from self._with(operands=tuple(rest)).solve_operands(left, solution, search)
                else:
                    yield solution


def _product(view: PrimView, sum_dtype: str | None, epilogue: bool | Collection[str]) -> BlockView | Decline:
    """Return the first block of a prim function, which must sum products, with an epilogue that is allowed."""
    if not view.blocks or not is_multiply_add(view.blocks[0]):
        return decline("its first block does not sum products", blocks=[block.name for block in view.blocks])
    block = view.blocks[0]
    reason = _epilogue(view.blocks[1:], epilogue)
    if reason is not None:
        return reason
    sums = str(block.outputs[0].element_type)
    if sum_dtype is not None and sums != sum_dtype:
        return decline(f"expected sums in {sum_dtype}", found=sums)
    return block


def contraction(
    lhs: Pattern,
    rhs: Pattern,
    axes: str | None = None,
    dtype: str | None = None,
    sum_dtype: str | None = None,
    multiples: Mapping[str, int] | None = None,
    extents: Extents | None = None,
    epilogue: bool | Collection[str] = False,
) -> PrimPattern:
    """Return a pattern of a prim function that contracts two operands.

    `axes` is an equation over free letters: "mk,kn->mn"; None for any contraction, convolutions included. `dtype` is
    the element type of both operands (or two, "ui8,i8"), `sum_dtype` that of the accumulator. `multiples` and
    `extents` constrain the sizes of axes by letter. `epilogue`: whether elementwise blocks may follow in the same
    prim function, or the operations that these may use.
    """
    wanted = None if axes is None else _canonical(axes)
    constrained = [*(multiples or ()), *(extents or ())]
    if unknown := [letter for letter in constrained if letter not in (axes or "")]:
        raise PatternError(f"the size of axis '{unknown[0]}' is constrained, but it is not in axes={axes!r}")

    def accept(node: BlockNode, view: PrimView) -> Sequence[int] | Decline:
        block = _product(view, sum_dtype, epilogue)
        if isinstance(block, Decline):
            return block
        indices = [_argument(view, operand.value) for operand in block.inputs]
        if len(indices) != 2 or None in indices:
            return decline("the product is not of two operands of the call")
        tried: list[Decline] = []
        for order in ((0, 1), (1, 0)):
            operands = [int(indices[i] or 0) for i in order]
            mismatch = _fits(node, block, operands, order, wanted, axes, dtype)
            mismatch = mismatch or _sizes(block, order, axes, multiples or {}, extents or {})
            if mismatch is None:
                return operands
            tried.append(mismatch)
        return tried[0]

    return PrimPattern("a contraction", accept, (lhs, rhs))


def _argument(view: PrimView, value: ir.Value) -> int | None:
    return next((i for i, argument in enumerate(view.arguments) if argument == value), None)


def _fits(
    node: BlockNode,
    block: BlockView,
    places: list[int],
    order: Sequence[int],
    wanted: str | None,
    axes: str | None,
    dtype: str | None,
) -> Decline | None:
    if dtype is not None:
        names = [name.strip() for name in dtype.split(",")] * (1 if "," in dtype else 2)
        kinds = [node.operands[i].type for i in places]
        dtypes = [kind.dtype.name if kind is not None else "?" for kind in kinds]
        if dtypes != names:
            return decline(f"expected operands of {','.join(names)}", found=",".join(dtypes))
    if wanted is None:
        return None
    has = equation(block, order)
    if has is None:
        return decline(f"expected {axes}, the operands are read through windows or with offsets")
    return None if _canonical(has) == wanted else decline(f"expected {axes}", found=has)


def _sizes(
    block: BlockView, order: Sequence[int], axes: str | None, multiples: Mapping[str, int], extents: Extents
) -> Decline | None:
    if axes is None:
        return None
    own = equation(block, order) or ""
    letters = dict(zip(_letters(axes), _letters(own), strict=False))
    for letter, factor in multiples.items():
        size = block.domain[_axis(letters[letter])]
        if size % factor != 0:
            return decline(f"axis {letter} must be a multiple of {factor}", size=size)
    for letter, wanted in extents.items():
        size = block.domain[_axis(letters[letter])]
        if callable(wanted):
            reason = Predicate.of(wanted, f"extent of {letter}").declines(size)
            if reason is not None:
                return reason
        elif size != wanted:
            return decline(f"axis {letter} must be {wanted}", size=size)
    return None


def equation(block: BlockView, order: Sequence[int] = (0, 1)) -> str | None:
    """Return the einsum equation of a block of two operands, "ac,cb->ab", with a letter for each axis.

    Return None if an operand has other than plain indices.
    """
    terms = []
    for operand in (*(block.inputs[i] for i in order), block.outputs[0]):
        if operand.map is None or operand.outside is not None:
            return None
        term = ""
        for expr in operand.map.results:
            if isinstance(expr, ir.AffineDimExpr):
                term += chr(ord("a") + expr.position)
            elif not isinstance(expr, ir.AffineConstantExpr):
                return None
        terms.append(term)
    return f"{terms[0]},{terms[1]}->{terms[2]}"


def _axis(letter: str) -> int:
    return ord(letter) - ord("a")


def _letters(text: str) -> list[str]:
    """Return the letters of an equation in order of first use."""
    return list(dict.fromkeys(letter for letter in text if letter.isalpha()))


def _canonical(text: str) -> str:
    """Rename the letters of an equation in order of first use."""
    names = {letter: chr(ord("a") + i) for i, letter in enumerate(_letters(text))}
    return "".join(names.get(letter, letter) for letter in text if not letter.isspace())


def _epilogue(blocks: Sequence[BlockView], wanted: bool | Collection[str]) -> Decline | None:
    if not blocks:
        return None
    if wanted is False:
        return decline("other blocks follow the product", blocks=[block.name for block in blocks])
    for block in blocks:
        if block_kind(block) > FusionKind.BROADCAST:
            return decline(f"block '{block.name}' after the product is not elementwise", kind=block_kind(block).label)
    return None if wanted is True else _allowed(blocks, wanted)


def _allowed(blocks: Sequence[BlockView], ops: Collection[str] | None) -> Decline | None:
    if ops is None:
        return None
    used = {op.name for block in blocks for op in block.body_ops if not op.name.startswith(CASTS)}
    others = sorted(used - set(ops))
    return decline(f"only {', '.join(sorted(ops))} may be computed", found=others) if others else None
