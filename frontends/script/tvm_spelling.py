"""TVM's spelling of scripts, as users paste it, rewritten to Mirlo's before anything reads the syntax tree.

    with R.dataflow():                                    lv = R.call_tir(mm, x, w, out=R.Tensor[(4, 4), "float32"])
        lv = R.call_tir(                                  gv = R.round(lv)
            cls.mm, (x, w), out_sinfo=R.Tensor((4, 4), "float32"))
        gv = R.rint(lv)
        R.output(gv)

Positions stay those of the user's text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TypeVar

from mirlo.frontends.script.syntax import TVM_TYPES, called, dotted, make_call
from mirlo.frontends.script.tvm_prim import EXPRESSIONS, declaration, is_harmless, rewritten, symbols_declared

WORDS = {
    "R.rint": "R.round", "T.rint": "T.roundeven", "T.nearbyint": "T.roundeven", "T.sblock": "T.block",
    "T.if_then_else": "T.select", "T.Select": "T.select", "T.fabs": "T.abs", "T.unroll": "T.unrolled",
    "R.astype": "R.cast", "R.permute_dims": "R.permute", "R.call_pure_packed": "R.call_packed",
    "R.left_shift": "R.shift_left", "R.right_shift": "R.shift_right",
    **{f"T.{name}": f"T.{short}" for name, short in TVM_TYPES.items()},
}  # fmt: skip
"""Words of TVM, and those of Mirlo with the same meaning."""
DROPPED = ("R.output", "R.func_attr", "T.func_attr", "T.block_attr", "T.sblock_attr", "T.writes")
"""Statements that say nothing to Mirlo, which finds it in the function."""
ARITHMETIC: dict[str, type[ast.operator]] = {
    "T.floordiv": ast.FloorDiv, "T.indexdiv": ast.FloorDiv, "T.floormod": ast.Mod, "T.indexmod": ast.Mod,
}  # fmt: skip
SIZED = (
    "T.Buffer", "T.alloc_buffer", "T.alloc", "T.decl_buffer", "T.grid", "T.serial", "T.parallel", "T.vectorized",
    "T.unrolled", "T.thread_binding", "T.axis.spatial", "T.axis.reduce", "T.launch_thread", "R.Tensor", "R.shape",
)  # fmt: skip
"""Calls that take sizes."""
OTHER_OF_NN = (
    "attention", "batch_norm", "group_norm", "instance_norm", "layer_norm", "pad", "prelu", "rms_norm", "softplus",
)  # fmt: skip
"""Operators of `R.nn` with the name of one of Mirlo that has other operands, results or defaults."""
REDUCTIONS = {f"R.{name}": f"R.reduce_{name}" for name in ("sum", "mean", "max", "min", "prod")}
_LIMITS = {
    "float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0,
    **{f"int{bits}": (1 << (bits - 1)) - 1 for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1 << bits) - 1 for bits in (8, 16, 32, 64)},
}  # fmt: skip
NUMBERS = ("T.i64", "T.i32", "T.i16", "T.i8", "T.f64", "T.f32", "T.f16")
"""Words that give a number its type, which dims and attributes do not have."""
AXES = {"T.axis.spatial": "S", "T.axis.S": "S", "T.axis.reduce": "R", "T.axis.R": "R"}

Syntax = TypeVar("Syntax", bound=ast.AST)


def translate(tree: Syntax) -> Syntax:
    """Rewrite TVM's spelling in place; other syntax stays as it is."""
    _Translator().visit(tree)
    ast.fix_missing_locations(tree)
    return tree


def is_of_tvm(tree: ast.AST) -> bool:
    """Return whether a text imports the languages of TVM's script."""
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return any(module.partition(".")[0] == "tvm" for module in modules)


class _Translator(ast.NodeTransformer):
    def __init__(self) -> None:
        self.modules: set[str] = set()
        """Names of the class that is the module, whose members are called by their own names."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.modules.add(node.name)
        for each in ast.walk(node):
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id == node.name:
                self.modules |= {target.id for target in each.targets if isinstance(target, ast.Name)}
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [declaration(names, each) if (names := symbols_declared(each)) else each for each in node.body]
        node.body, node.args.args = _with_buffers(node)
        if called(node.returns) == "R.Tuple" or dotted(node.returns) == "R.Object":
            node.returns = None  # Mirlo finds the types of results
        self.generic_visit(node)
        node.body = self._statements(node.body)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        node.body = self._statements(node.body)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body = self._statements(node.body)
        return node

    def _statements(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.With) and [called(item.context_expr) for item in node.items] == ["R.dataflow"]:
                result += node.body
            elif _is_axes(node) and result and _is_axes(result[-1]):
                _join(result[-1], node)
            elif isinstance(node, ast.With) and called(node.items[0].context_expr) in ("T.LetStmt", "T.let"):
                result += _let(node)
            elif isinstance(node, ast.AnnAssign) and node.value is not None and dotted(node.annotation)[:2] == "T.":
                result.append(ast.copy_location(ast.Assign([node.target], node.value), node))
            elif not (isinstance(node, ast.Expr) and _has_no_effect(node.value) or self._is_alias(node)):
                result.append(node)
        return rewritten(_predicated(result))

    def _is_alias(self, node: ast.stmt) -> bool:
        """Return whether this is `cls = Module`."""
        return isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in self.modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        if dotted(node.value) in ("R.nn", "R.image"):
            node.attr = f"nn_{node.attr}" if node.attr in OTHER_OF_NN else node.attr
            node.value = ast.copy_location(ast.Name("R", ast.Load()), node.value)
        name = dotted(node)
        callee = WORDS.get(name) or REDUCTIONS.get(name)
        if callee is not None:
            node.attr = callee.partition(".")[2]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        callee = called(node)
        if callee.startswith("T."):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "annotations"]
        _read_arguments(callee, node)
        rewrite = CALLS.get(callee)
        if rewrite is not None:
            return rewrite(node)
        if callee == "R.Tensor" and node.args:
            dtype = [k.value for k in node.keywords if k.arg == "dtype"]
            elements = ast.copy_location(ast.Tuple([*node.args, *dtype], ast.Load()), node)
            return ast.copy_location(ast.Subscript(node.func, elements, ast.Load()), node)
        if callee == "R.call_tir":
            if len(node.args) == 2 and isinstance(node.args[1], (ast.Tuple, ast.List)):
                node.args[1:] = node.args[1].elts
            for keyword in node.keywords:
                keyword.arg = "out" if keyword.arg in ("out_sinfo", "out_ty") else keyword.arg
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "tir_vars"]
        if callee == "T.axis.remap" and len(node.args) == 2 and isinstance(node.args[1], (ast.Tuple, ast.List)):
            return _axes(node, node.args[0], node.args[1].elts)
        if callee in AXES and len(node.args) == 2:
            return _axes(node, ast.copy_location(ast.Constant(AXES[callee]), node), node.args[1:])
        return node


def _read_arguments(callee: str, node: ast.Call) -> None:
    """Give the arguments of a call the names, types and numbers that they have in Mirlo."""
    if callee in SIZED or callee.startswith("R."):
        node.args = [_sizes(argument) for argument in node.args]
    if callee == "T.Buffer" and node.args:
        node.args += [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
        node.keywords = [k for k in node.keywords if not _is_plain(str(k.arg), k.value, node.args[0])]
    if callee.startswith("R."):
        for keyword in node.keywords:
            keyword.value = _sizes(keyword.value)
            if keyword.arg in ("dtype", "out_dtype") and isinstance(keyword.value, ast.Constant):
                short = TVM_TYPES.get(str(keyword.value.value), keyword.value.value)
                keyword.value = ast.copy_location(ast.Constant(short), keyword.value)
        node.keywords = [k for k in node.keywords if not (k.arg == "out_dtype" and _is_void(k.value))]


def _has_no_effect(node: ast.expr) -> bool:
    """Return whether a statement has no effect: one of `DROPPED`, or `T.evaluate(0)`."""
    callee = called(node)
    is_number = isinstance(node, ast.Call) and all(isinstance(each, ast.Constant) for each in node.args)
    return callee in DROPPED or (callee == "T.evaluate" and is_number)


def _limit(node: ast.Call) -> ast.expr:
    """Return the least or the largest number of an element type, for `T.min_value("int8")`."""
    dtype = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
    if not isinstance(dtype, str) or dtype not in _LIMITS:
        return node
    number = _LIMITS[dtype]
    if called(node) == "T.min_value":
        number = -number if isinstance(number, float) else 0 if dtype[0] == "u" else ~number
    return make_call(node, WORDS[f"T.{dtype}"], [ast.copy_location(ast.Constant(number), node)])


def _cast(node: ast.Call) -> ast.expr:
    """Return `T.f32(x)` for `T.Cast("float32", x)` and `T.cast(x, "float32")`."""
    if len(node.args) != 2:
        return node
    target, value = node.args if called(node) == "T.Cast" else node.args[::-1]
    name = WORDS.get(f"T.{target.value!s}") if isinstance(target, ast.Constant) else None
    return make_call(node, name, [value]) if name is not None else node


def _quotient(node: ast.Call) -> ast.expr:
    """Return `a // b` or `a % b`."""
    if len(node.args) != 2:
        return node
    return ast.copy_location(ast.BinOp(node.args[0], ARITHMETIC[called(node)](), node.args[1]), node)


def _packed(node: ast.Call) -> ast.expr:
    """Return a call of a function at run time, whose result has the type `out`."""
    for keyword in node.keywords:
        if keyword.arg in ("sinfo_args", "out_sinfo", "out_ty", "ty_args"):
            keyword.arg = "out"
            if isinstance(keyword.value, (ast.List, ast.Tuple)) and len(keyword.value.elts) == 1:
                keyword.value = keyword.value.elts[0]
    if len(node.args) == 2 and isinstance(node.args[1], ast.Tuple):
        node.args[1:] = node.args[1].elts
    return node


def _external(node: ast.Call) -> ast.expr:
    """Return `T.call_extern("f", x, dtype="float32")`, where TVM has the type first."""
    second = node.args[1] if len(node.args) > 1 else None
    if isinstance(second, ast.Constant) and isinstance(second.value, str):
        node.keywords.append(ast.keyword("dtype", node.args.pop(0)))
    return node


def _graph_cast(node: ast.Call) -> ast.expr:
    """Return `R.cast(x, dtype="f32")` for `R.astype(x, "float32")`."""
    if len(node.args) == 2:
        node.keywords.append(ast.keyword("dtype", node.args.pop()))
    for keyword in node.keywords:
        if keyword.arg == "dtype" and isinstance(keyword.value, ast.Constant):
            name = WORDS.get(f"T.{keyword.value.value!s}", "").removeprefix("T.")
            keyword.value = ast.copy_location(ast.Constant(name or keyword.value.value), keyword.value)
    return node


def _allocated(node: ast.Call) -> ast.expr:
    """Return `T.alloc(shape, dtype)` for TVM's `T.alloc_buffer`, whose type is float32 if there is none."""
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    arguments: dict[str | None, ast.expr] = dict(named)
    arguments.update(zip(("shape", "dtype"), node.args, strict=False))
    if "shape" not in arguments:
        return node
    dtype = arguments.get("dtype") or ast.copy_location(ast.Constant("float32"), node)
    rest = [keyword for keyword in node.keywords if keyword.arg not in ("shape", "dtype")]
    return make_call(node, "T.alloc", [arguments["shape"], dtype], rest)


def _bound_loop(node: ast.Call) -> ast.expr:
    """Read `T.thread_binding(8, thread="threadIdx.x")`, and a lower bound of 0."""
    node.args += [k.value for k in node.keywords if k.arg == "thread"]
    node.keywords = [k for k in node.keywords if k.arg != "thread"]
    if len(node.args) == 3 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0:
        del node.args[0]
    return node


def _tuple(node: ast.Call) -> ast.expr:
    """Return `(a, b)` for `R.tuple(a, b)`."""
    return node if node.keywords else ast.copy_location(ast.Tuple(node.args, ast.Load()), node)


def _element(node: ast.Call) -> ast.expr:
    """Return `x[0]` for `R.TupleGetItem(x, 0)`."""
    if len(node.args) != 2 or node.keywords:
        return node
    return ast.copy_location(ast.Subscript(node.args[0], node.args[1], ast.Load()), node)


def _reduced(node: ast.Call) -> ast.expr:
    """Return `R.reduce_sum(x, axes=[1])` for `R.sum(x, axis=1)` and `R.sum(x, 1)`."""
    if len(node.args) == 2:
        node.keywords.append(ast.keyword("axis", node.args.pop()))
    for keyword in node.keywords:
        keyword.arg = "axes" if keyword.arg == "axis" else keyword.arg
        is_one = (
            isinstance(keyword.value, (ast.Constant, ast.UnaryOp)) and getattr(keyword.value, "value", 0) is not None
        )
        if keyword.arg == "axes" and is_one:
            keyword.value = ast.copy_location(ast.List([keyword.value], ast.Load()), keyword.value)
    return node


def _let(node: ast.With) -> list[ast.stmt]:
    """Return the statements of `with T.LetStmt(value) as x:` or `with T.let(x, value):`, after `x = value`."""
    item = node.items[0]
    assert isinstance(item.context_expr, ast.Call)
    arguments = item.context_expr.args
    if item.optional_vars is not None and len(arguments) == 1:
        target, value = item.optional_vars, arguments[0]
    elif len(arguments) == 2 and isinstance(arguments[0], ast.Name):
        target, value = ast.copy_location(ast.Name(arguments[0].id, ast.Store()), arguments[0]), arguments[1]
    else:
        return [node]
    return [ast.copy_location(ast.Assign([target], value), node), *node.body]


def _predicated(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a block, those after its axes in an `if` where `T.where` restricts it."""
    predicates = [each.value for each in body if isinstance(each, ast.Expr) and called(each.value) == "T.where"]
    if len(predicates) != 1 or not isinstance(predicates[0], ast.Call) or len(predicates[0].args) != 1:
        return body
    others = [each for each in body if not (isinstance(each, ast.Expr) and each.value is predicates[0])]
    axes = [each for each in others if _is_axes(each)]
    rest = [each for each in others if not _is_axes(each)]
    return [*axes, ast.copy_location(ast.If(predicates[0].args[0], rest, []), rest[0])] if rest else axes


def _with_buffers(node: ast.FunctionDef) -> tuple[list[ast.stmt], list[ast.arg]]:
    """Return a body and parameters where `A = T.match_buffer(a, shape, dtype)` made a handle `a` a buffer `A`."""
    handles = {each.arg: each for each in node.args.args if dotted(each.annotation) == "T.handle"}
    body = []
    for statement in node.body:
        call = statement.value if isinstance(statement, ast.Assign) else None
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(call, ast.Call) or called(call) != "T.match_buffer" or not isinstance(target, ast.Name):
            body.append(statement)
            continue
        handle = call.args[0] if call.args else None
        rest: dict[str | None, ast.expr] = {keyword.arg: keyword.value for keyword in call.keywords}
        rest.update(zip(("shape", "dtype", "data", "strides"), call.args[1:], strict=False))
        extra = [name for name, value in rest.items() if not _is_plain(str(name), value, rest.get("shape"))]
        if not isinstance(handle, ast.Name) or handle.id not in handles or "shape" not in rest or extra:
            body.append(statement)
            continue
        dtype = rest.get("dtype") or ast.copy_location(ast.Constant("float32"), call)
        parameter = handles.pop(handle.id)
        parameter.arg, parameter.annotation = target.id, make_call(call, "T.Buffer", [rest["shape"], dtype])
    return body, node.args.args


def _is_plain(name: str, value: ast.expr, shape: ast.expr | None) -> bool:
    """Return whether an argument of a buffer is its shape or type, or agrees with a contiguous buffer."""
    return name in ("shape", "dtype") or is_harmless(name, value, shape)


def _is_void(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("", "void")


def _sizes(node: ast.expr) -> ast.expr:
    """Return `(8, n)` for `(T.i64(8), n)`: a dim has no type."""
    if isinstance(node, (ast.Tuple, ast.List)):
        node.elts = [_sizes(each) for each in node.elts]
    only = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None
    return only if only is not None and called(node) in NUMBERS else node


def _axes(node: ast.Call, letters: ast.expr, indices: Iterable[ast.expr]) -> ast.Call:
    """Return `T.axes(letters, indices...)` in the place of a call."""
    function = ast.copy_location(ast.Attribute(ast.Name("T", ast.Load()), "axes", ast.Load()), node)
    return ast.copy_location(ast.Call(function, [letters, *indices], []), node)


def _is_axes(node: ast.stmt) -> bool:
    """Return whether a statement names axes of a block, with their letters."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or called(node.value) != "T.axes":
        return False
    letters = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else None
    return isinstance(letters, ast.Constant) and isinstance(letters.value, str)


def _join(first: ast.stmt, second: ast.stmt) -> None:
    """Merge a statement about axes into the one before it."""
    assert isinstance(first, ast.Assign) and isinstance(first.value, ast.Call)
    assert isinstance(second, ast.Assign) and isinstance(second.value, ast.Call)
    letters = [call.args[0].value for call in (first.value, second.value) if isinstance(call.args[0], ast.Constant)]
    joined = ast.copy_location(ast.Constant("".join(map(str, letters))), first.value.args[0])
    first.value.args = [joined, *first.value.args[1:], *second.value.args[1:]]
    names = [*_targets(first.targets[0]), *_targets(second.targets[0])]
    first.targets = [ast.copy_location(ast.Tuple(names, ast.Store()), first.targets[0])]


def _targets(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


CALLS: dict[str, Callable[[ast.Call], ast.expr]] = {
    "R.call_packed": _packed, "R.call_dps_packed": _packed, "R.cast": _graph_cast,
    "T.Cast": _cast, "T.cast": _cast, "T.max_value": _limit, "T.min_value": _limit, "T.alloc_buffer": _allocated,
    "R.tuple": _tuple, "R.TupleGetItem": _element, "T.call_extern": _external, "T.thread_binding": _bound_loop,
    **EXPRESSIONS, **dict.fromkeys(ARITHMETIC, _quotient), **dict.fromkeys(REDUCTIONS.values(), _reduced),
}  # fmt: skip
"""What rewrites the calls of a name."""
