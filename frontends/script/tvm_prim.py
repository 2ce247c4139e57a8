"""Statements of TVM's prim functions that are several of Mirlo's, or none: symbols, views, vectors, threads, memory.

n = T.int64()                                         n = T.dims("n")
bx = T.launch_thread("blockIdx.x", 8)                 for bx in T.thread_binding(8, "blockIdx.x"):
B[T.Ramp(i * 4, 1, 4)] = T.Broadcast(A[i], 4)             for lane in T.vectorized(4):
                                                              B[i * 4 + lane] = A[i]
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Mapping

from mirlo.frontends.script.syntax import TVM_TYPES, called, make_call

SYMBOLS = ("T.int64", "T.int32", "T.i64", "T.i32")
"""Calls without operands, which declare symbols of dims."""
MEMORY_HINTS = ("align", "offset_factor", "scope", "buffer_type", "axis_separators", "elem_offset", "strides")
"""Arguments of a buffer that say how it lies in memory: Mirlo's are contiguous."""
LANE = "lane"
"""The index of the loop that a vector becomes."""


def symbols_declared(node: ast.stmt) -> list[str]:
    """Return the names in `n = T.int64()`, `m, n = T.int32(), T.int32()` and `n: T.int64()`."""
    if isinstance(node, ast.AnnAssign) and node.value is None and _is_symbol(node.annotation):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target = node.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    if len(names) != len(values) or not all(map(_is_symbol, values)):
        return []
    return [name.id for name in names if isinstance(name, ast.Name)]


def _is_symbol(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and not node.args and called(node) in SYMBOLS


def declaration(names: list[str], node: ast.stmt) -> ast.stmt:
    """Return a statement `m, n = T.dims("m", "n")` at the position of another one."""
    stored: list[ast.expr] = [ast.copy_location(ast.Name(name, ast.Store()), node) for name in names]
    target = stored[0] if len(stored) == 1 else ast.copy_location(ast.Tuple(stored, ast.Store()), node)
    constants: list[ast.expr] = [ast.copy_location(ast.Constant(name), node) for name in names]
    return ast.copy_location(ast.Assign([target], make_call(_place(node), "T.dims", constants)), node)


def _place(node: ast.stmt) -> ast.expr:
    return ast.copy_location(ast.Constant(None), node)


def is_harmless(name: str, value: ast.expr, shape: ast.expr | None) -> bool:
    """Return whether an argument of a buffer has no effect on a contiguous buffer, whatever its value."""
    if name not in MEMORY_HINTS:
        return False
    if name == "scope":
        return isinstance(value, ast.Constant) and value.value in ("", "global")
    if name == "elem_offset":
        return not isinstance(value, ast.Constant) or value.value == 0
    if name != "strides":
        return True
    strides = [_number(each) for each in value.elts] if isinstance(value, (ast.Tuple, ast.List)) else []
    sizes = [_number(each) for each in shape.elts] if isinstance(shape, (ast.Tuple, ast.List)) else []
    step: int | None = 1
    for stride, size in zip(reversed(strides), reversed(sizes), strict=False):
        if stride is not None and step is not None and stride != step:
            return False
        step = None if step is None or size is None else step * size
    return True


def _number(node: ast.expr) -> int | None:
    inner = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else node
    return inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, int) else None


# --------------------------------------------------------------------------------------------------------- statements


def rewritten(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return statements with threads as loops, vectors as loops, views as their buffers, and memory as `T.alloc`."""
    result: list[ast.stmt] = []
    rest = list(body)
    memory: dict[str, ast.Call] = {}
    while rest:
        node = rest.pop(0)
        thread = _thread(node)
        if thread is not None:
            index, call = thread
            inside = node.body if isinstance(node, ast.With) else rest
            result.append(_loop(index, make_call(call, "T.thread_binding", call.args[::-1]), rewritten(inside), node))
            rest = rest if isinstance(node, ast.With) else []
            continue
        if isinstance(node, ast.Assign) and called(node.value) == "T.allocate" and isinstance(node.value, ast.Call):
            memory |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
            continue
        view = _view(node)
        if view is not None:
            rest = [_Viewed(*view).visit(each) for each in rest]
            continue
        if isinstance(node, ast.With) and called(node.items[0].context_expr) == "T.attr" and _is_pragma(node):
            result += node.body
            continue
        result.append(_vector_loop(_allocated(node, memory)))
    return result


def _is_pragma(node: ast.With) -> bool:
    call = node.items[0].context_expr
    key = call.args[1] if isinstance(call, ast.Call) and len(call.args) == 3 else None
    return isinstance(key, ast.Constant) and str(key.value).startswith("pragma_")


def _loop(index: ast.expr, extent: ast.expr, body: list[ast.stmt], node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.For(index, extent, body, []), node)


def _thread(node: ast.stmt) -> tuple[ast.expr, ast.Call] | None:
    """Return the index and the call of `bx = T.launch_thread("blockIdx.x", 8)`, or of the same after `with`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, call = node.targets[0], node.value
    elif isinstance(node, ast.With) and len(node.items) == 1 and node.items[0].optional_vars is not None:
        target, call = node.items[0].optional_vars, node.items[0].context_expr
    else:
        return None
    is_launch = isinstance(call, ast.Call) and called(call) == "T.launch_thread" and len(call.args) == 2
    return (target, call) if is_launch and isinstance(call, ast.Call) else None


def _allocated(node: ast.stmt, memory: Mapping[str, ast.Call]) -> ast.stmt:
    """Return `C = T.alloc(shape, dtype)` for a buffer that is declared in memory of `T.allocate`, or in its own."""
    call = node.value if isinstance(node, ast.Assign) else None
    if not isinstance(call, ast.Call) or called(call) not in ("T.decl_buffer", "T.Buffer"):
        return node
    named = {str(keyword.arg): keyword.value for keyword in call.keywords}
    named.update(zip(("shape", "dtype"), call.args, strict=False))
    data = named.pop("data", None)
    known = memory.get(data.id) if isinstance(data, ast.Name) else None
    if "shape" not in named or (data is not None and known is None):
        return node
    dtype = known.args[1] if known is not None else named.get("dtype", ast.copy_location(ast.Constant("float32"), node))
    scope = known.args[2:] if known is not None else [named["scope"]] if "scope" in named else []
    if any(isinstance(each, ast.Constant) and each.value == "global" for each in scope):
        scope = []
    assert isinstance(node, ast.Assign)
    node.value = make_call(call, "T.alloc", [named["shape"], dtype, *scope])
    return node


def _view(node: ast.stmt) -> tuple[str, ast.Subscript] | None:
    """Return the name and the region of `a = T.match_buffer(A[i * 4:i * 4 + 4, j], (4,), "float32")`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return None
    call = node.value
    if not isinstance(call, ast.Call) or called(call) != "T.match_buffer" or not call.args:
        return None
    return (node.targets[0].id, call.args[0]) if isinstance(call.args[0], ast.Subscript) else None


class _Viewed(ast.NodeTransformer):
    """Replaces elements of a view by those of its buffer."""

    def __init__(self, name: str, region: ast.Subscript) -> None:
        self.name, self.region = name, region
        inside = region.slice
        self.places = inside.elts if isinstance(inside, ast.Tuple) else [inside]

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.value, ast.Name) or node.value.id != self.name:
            return node
        indices = list(node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
        has_all = len(indices) == len(self.places)
        if not has_all and len(indices) != sum(isinstance(place, ast.Slice) for place in self.places):
            return node
        elements: list[ast.expr] = []
        for place in self.places:
            start = place.lower if isinstance(place, ast.Slice) else place
            index = indices.pop(0) if has_all or isinstance(place, ast.Slice) else None
            parts = [copy.deepcopy(part) for part in (start, index) if part is not None]
            elements.append(parts[0] if len(parts) == 1 else ast.copy_location(_sum(*parts), node))
        inside = ast.copy_location(ast.Tuple(elements, ast.Load()), node)
        return ast.copy_location(ast.Subscript(copy.deepcopy(self.region.value), inside, node.ctx), node)


def _sum(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.copy_location(ast.BinOp(left, ast.Add(), right), left)


# ------------------------------------------------------------------------------------------------------------ vectors


def _vector_loop(node: ast.stmt) -> ast.stmt:
    """Return a loop over the lanes of a store to `B[T.Ramp(base, stride, 4)]` or `B[base:base + 4]`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Subscript):
        return node
    lanes = next(filter(None, map(_lanes, ast.walk(node.targets[0]))), None)
    if lanes is None:
        return node
    index = ast.copy_location(ast.Name(LANE, ast.Store()), node)
    extent = make_call(_place(node), "T.vectorized", [ast.copy_location(ast.Constant(lanes), node)])
    return _loop(index, extent, [_OneLane().visit(node)], node)


def _lanes(node: ast.AST) -> int | None:
    """Return the number of elements of a slice or of `T.Ramp(base, stride, lanes)`; None for what is neither."""
    if isinstance(node, ast.Call) and called(node) == "T.Ramp" and len(node.args) == 3:
        return _number(node.args[2])
    if not isinstance(node, ast.Slice) or node.lower is None or node.upper is None:
        return None
    lower, upper = _number(node.lower), _number(node.upper)
    step = _number(node.step) if node.step is not None else 1
    if lower is not None and upper is not None and step:
        return -(-(upper - lower) // step)
    is_sum = isinstance(node.upper, ast.BinOp) and isinstance(node.upper.op, ast.Add)
    if isinstance(node.upper, ast.BinOp) and is_sum and ast.dump(node.upper.left) == ast.dump(node.lower) and step:
        count = _number(node.upper.right)
        return None if count is None else -(-count // step)
    return None


class _OneLane(ast.NodeTransformer):
    """Replaces vectors by the element of one lane."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        callee = called(node)
        if callee == "T.Broadcast" and len(node.args) == 2:
            return node.args[0]
        if callee == "T.Ramp" and len(node.args) == 3:
            return _lane(node.args[0], node.args[1])
        return node

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        if _lanes(node) is None or node.lower is None:
            return node
        return _lane(node.lower, node.step)


def _lane(base: ast.expr, stride: ast.expr | None) -> ast.expr:
    lane: ast.expr = ast.copy_location(ast.Name(LANE, ast.Load()), base)
    if stride is not None and _number(stride) != 1:
        lane = ast.copy_location(ast.BinOp(lane, ast.Mult(), stride), base)
    return _sum(base, lane)


# -------------------------------------------------------------------------------------------------------- expressions


def _logical(operator: type[ast.boolop]) -> Callable[[ast.Call], ast.expr]:
    return lambda node: ast.copy_location(ast.BoolOp(operator(), node.args), node) if len(node.args) > 1 else node


def _negated(node: ast.Call) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), node.args[0]), node) if len(node.args) == 1 else node


def _inverted(node: ast.Call) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Invert(), node.args[0]), node) if len(node.args) == 1 else node


def _itself(node: ast.Call) -> ast.expr:
    return node.args[0] if len(node.args) == 1 and not node.keywords else node


def _binary(operator: type[ast.operator]) -> Callable[[ast.Call], ast.expr]:
    return lambda node: (
        ast.copy_location(ast.BinOp(node.args[0], operator(), node.args[1]), node) if len(node.args) == 2 else node
    )


def _rounded_up(node: ast.Call) -> ast.expr:
    """Return `(a + b - 1) // b`."""
    if len(node.args) != 2:
        return node
    left, right = node.args
    more = ast.copy_location(ast.BinOp(_sum(left, right), ast.Sub(), ast.copy_location(ast.Constant(1), node)), node)
    return ast.copy_location(ast.BinOp(more, ast.FloorDiv(), copy.deepcopy(right)), node)


def _reinterpreted(node: ast.Call) -> ast.expr:
    """Return `x.bitcast("int32")` for `T.reinterpret("int32", x)`."""
    if len(node.args) != 2:
        return node
    function = ast.copy_location(ast.Attribute(node.args[1], "bitcast", ast.Load()), node)
    return ast.copy_location(ast.Call(function, [node.args[0]], []), node)


def _selected(node: ast.Call) -> ast.expr:
    node.keywords = [keyword for keyword in node.keywords if keyword.arg != "dtype"]
    return node


def _infinite(node: ast.Call) -> ast.expr:
    """Return `T.f32(inf)` for `T.infinity("float32")`."""
    dtype = node.args[0] if len(node.args) == 1 else None
    short = TVM_TYPES.get(str(dtype.value)) if isinstance(dtype, ast.Constant) else None
    if short is None:
        return node
    return make_call(node, f"T.{short}", [ast.copy_location(ast.Constant(float("inf")), node)])


def _immediate(node: ast.Call) -> ast.expr:
    """Return `T.float32(0.5)` for `T.FloatImm("float32", 0.5)`."""
    dtype = node.args[0] if len(node.args) == 2 else None
    short = TVM_TYPES.get(str(dtype.value)) if isinstance(dtype, ast.Constant) else None
    return make_call(node, f"T.{short}", [node.args[1]]) if short is not None else node


def unquoted(node: ast.Call) -> ast.expr:
    """Return `T.f32(-inf)` for `T.f32("-inf")`."""
    only = node.args[0] if len(node.args) == 1 else None
    if isinstance(only, ast.Constant) and only.value in ("inf", "-inf", "nan"):
        node.args = [ast.copy_location(ast.Constant(float(only.value)), only)]
    return node


EXPRESSIONS: dict[str, Callable[[ast.Call], ast.expr]] = {
    "T.And": _logical(ast.And), "T.Or": _logical(ast.Or), "T.Not": _negated, "T.bitwise_not": _inverted,
    "T.bitwise_and": _binary(ast.BitAnd), "T.bitwise_or": _binary(ast.BitOr), "T.bitwise_xor": _binary(ast.BitXor),
    "T.shift_left": _binary(ast.LShift), "T.shift_right": _binary(ast.RShift),
    "T.Add": _binary(ast.Add), "T.Sub": _binary(ast.Sub), "T.Mul": _binary(ast.Mult), "T.Div": _binary(ast.Div),
    "T.likely": _itself, "T.bind": _itself, "T.ceildiv": _rounded_up, "T.reinterpret": _reinterpreted,
    "T.select": _selected, "T.infinity": _infinite, "T.FloatImm": _immediate, "T.IntImm": _immediate,
    **dict.fromkeys(("T.f64", "T.f32", "T.f16", "T.bf16"), unquoted),
}  # fmt: skip
"""What rewrites the calls of a name, as expressions of Python."""
