"""Checks whether the library computes a match: each returns True, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from mirlo.extend.codegen import BlockNode, BlockValue, Decline, Dim, Match, SymbolicDim, decline
from mirlo_onednn.post_ops import BINARY

Check = Callable[[BlockNode], bool | Decline]
MAX_RANK = 6
MAX_OPERANDS = 1 << 16


LightOperators = Mapping[str, tuple[Check, int]]
"""Operators that compiled kernels compute better: the check, and the most computed operands."""


def light_operator(
    check: Callable[[Match], bool | Decline], heavy: Collection[str], light: LightOperators
) -> Callable[[Match], bool | Decline]:
    """Return a check of light operators, which are matched only between, before or after heavy ones."""

    def near_heavy(match: Match) -> bool | Decline:
        result = check(match)
        if result is True and not _reaches_heavy(match, heavy, light):
            return decline("no operator that is worth the library is near: compiled kernels do it better")
        return result

    near_heavy.__name__ = "beside"
    return near_heavy


def _reaches_heavy(match: Match, heavy: Collection[str], light: LightOperators) -> bool:
    seen = {node.index for node in match.nodes}
    front = list(match.nodes)
    while front:
        node = front.pop()
        makers = [value.node for value in node.operands if value.node is not None]
        for other in (*makers, *node.users):
            if other.index in seen:
                continue
            seen.add(other.index)
            if other.name in heavy and _tensors(other) is True:
                return True
            _, operands = light.get(other.name, (any_match, 0))
            is_pick = operands == 1 and light[other.name][0](other) is True
            if other.name in light and (operands != 1 or is_pick) and _tensors(other, operands) is True:
                front.append(other)
    return False


def single_operation(check: Check, operands: int = MAX_OPERANDS) -> Callable[[Match], bool | Decline]:
    """Return a check of a match of one operation with a bounded number of computed operands."""

    def checked(match: Match) -> bool | Decline:
        node = match.nodes[0]
        return _first_no(_tensors(node, operands), lambda: check(node))

    checked.__name__ = check.__name__
    return checked


def chain(check: Check) -> Callable[[Match], bool | Decline]:
    """Return a check of a match of an operation and its epilogue."""

    def checked(match: Match) -> bool | Decline:
        first, *rest = match.nodes
        result = _first_no(_tensors(first), lambda: check(first))
        value = first.results[0]
        for node in rest:
            if result is not True:
                break
            result = _first_no(_tensors(node), lambda node=node, value=value: _follows(node, value, match))  # type: ignore[misc]
            value = node.results[0]
        return result

    checked.__name__ = check.__name__
    return checked


def any_match(node: BlockNode) -> bool:
    """Accept any match."""
    return True


def convolution(node: BlockNode) -> bool | Decline:
    """Check a convolution: windows in one to three dims, weights of a static shape."""
    return _first_no(_fixed_weight(node), lambda: _window_rank(node))


def deconvolution(node: BlockNode) -> bool | Decline:
    """Check a deconvolution: windows in one to three dims, no negative padding at the end."""
    extra, padding = node.attribute("output_padding"), node.attribute("padding")
    if extra and any(extra):
        ends = padding[len(padding) // 2 :] if padding else (0,) * len(extra)
        if any(more > end for more, end in zip(extra, ends, strict=True)):
            return decline("output_padding is more than the padding at the end", output_padding=extra, padding=padding)
    return _first_no(_fixed_weight(node), lambda: _window_rank(node))


def _fixed_weight(node: BlockNode) -> bool | Decline:
    weight = node.operands[1]
    axes = _dynamic_axes(weight, range(len(_shape(weight))))
    return decline("the weight has dims that only a call knows", found=", ".join(axes)) if axes else True


def matmul(node: BlockNode) -> bool | Decline:
    """Check a product of matrices; products of vectors are refused."""
    ranks = [_shape(value) for value in node.operands[:2]]
    if any(len(shape) < 2 for shape in ranks):
        return decline("a product with a vector is not a matrix product of the library", operands=ranks)
    return True


def attention(node: BlockNode) -> bool | Decline:
    """Check an attention: equal numbers of heads for queries and keys, and an additive mask."""
    query, key = _shape(node.operands[0]), _shape(node.operands[1])
    if query[1] != key[1]:
        return decline("queries share heads of keys", query_heads=query[1], key_heads=key[1])
    if node.attribute("softcap") is not None:
        return decline("the library does not cap scores", softcap=node.attribute("softcap"))
    if not isinstance(query[3], int):
        return decline("the size of heads is only known to a call", found=str(query[3]))
    lengths = [str(dim) for dim in (query[2], key[2]) if not isinstance(dim, int)]
    if node.attribute("causal") and lengths:
        return decline("a causal mask has a fixed shape", lengths=lengths)
    return True


def instance_norm(node: BlockNode) -> bool | Decline:
    """Check an instance normalization: the number of channels must be static."""
    axes = _dynamic_axes(node.operands[0], [1])
    return decline("the number of channels is only known to a call", found=axes[0]) if axes else True


def pool(node: BlockNode) -> bool | Decline:
    """Check a pooling: the library must count padding as the operator does."""
    if node.name == "relax.avg_pool" and node.attribute("ceil_mode") and node.attribute("count_include_pad"):
        return decline("with ceil_mode, windows reach beyond the padding that count_include_pad counts")
    if any(step != 1 for step in node.attribute("dilations") or ()):
        return decline("the library is slow with dilated windows", dilations=node.attribute("dilations"))
    return _window_rank(node)


def layer_norm(node: BlockNode) -> bool | Decline:
    """Check a normalization: one scale for each normalized element."""
    shape, axis = _shape(node.operands[0]), node.attribute("axis")
    for name in ("scale", "bias"):
        factor = node.operand(name)
        if factor is not None and _shape(factor) != shape[axis:]:
            return decline(f"{name} is broadcast", found=_shape(factor), expected=shape[axis:])
    return True


def lrn(node: BlockNode) -> bool | Decline:
    """Check an LRN: windows of channels around the middle one."""
    size = node.attribute("size")
    return True if size % 2 else decline("a window of an even number of channels has no middle", size=size)


def binary(node: BlockNode) -> bool | Decline:
    """Check a binary operator: one operand has the shape of the result, the other one broadcasts."""
    result = _shape(node.results[0])
    shapes = [_shape(value) for value in node.operands]
    if node.name == "relax.divide" and shapes[0] != result:
        return decline("the dividend is broadcast", found=shapes[0], result=result)
    if result not in shapes:
        return decline("both operands are broadcast", operands=shapes)
    if all(value.is_constant for value in node.operands):
        return decline("both operands are constants")
    return True


def reduction(node: BlockNode) -> bool | Decline:
    """Check a reduction: of the last axes."""
    rank = len(_shape(node.operands[0]))
    axes = node.attribute("axes")
    reduced = sorted(axis % rank for axis in (range(rank) if axes is None else axes))
    if reduced != list(range(rank - len(reduced), rank)) or not reduced:
        return decline("the library reduces the last axes only, unless slowly", axes=axes)
    return True


def strided_slice(node: BlockNode) -> bool | Decline:
    """Check a slice: positive steps along static dims."""
    steps = node.attribute("strides")
    if any(step < 1 for step in steps):
        return decline("a slice that goes backwards", strides=steps)
    axes = _dynamic_axes(node.operands[0], node.attribute("axes"))
    if axes:
        return decline("a slice of a dim that only a call knows", found=", ".join(axes))
    shape, result = _shape(node.operands[0]), _shape(node.results[0])
    for axis, step in zip(node.attribute("axes"), steps, strict=True):
        # Of memory with strides the library wants whole steps: the next outer row begins after the last one.
        if axis % len(shape) and int(result[axis]) * step > int(shape[axis]):
            return decline("a slice whose last step ends outside", axis=axis, step=step, size=shape[axis])
    return True


def pick(node: BlockNode) -> bool | Decline:
    """Check a gather: one slice at a constant index."""
    indices = node.operands[1]
    count = indices.type
    if not indices.is_constant or count is None or any(dim != 1 for dim in count.shape):
        return decline("only one slice at a constant place is a view", indices=str(count))
    axes = _dynamic_axes(node.operands[0], [node.attribute("axis")])
    return decline("a slice of a dim that only a call knows", found=", ".join(axes)) if axes else True


def view(node: BlockNode) -> bool | Decline:
    """Check a split: parts of static size."""
    if node.name != "relax.split":
        return True
    sizes = [str(size) for size in node.attribute("sizes") if not isinstance(size, int)]
    return decline("parts of dynamic size", found=", ".join(sizes)) if sizes else True


def _window_rank(node: BlockNode) -> bool | Decline:
    rank = len(_shape(node.operands[0]))
    return True if 3 <= rank <= 5 else decline("windows of 1 to 3 dims are known", rank=rank)


def _follows(node: BlockNode, value: BlockValue, match: Match) -> bool | Decline:
    """Return whether an elementwise operator can be applied to a result before the result is stored."""
    if node.name not in BINARY:
        return True
    others = [operand for operand in node.operands if operand is not value]
    if len(others) != 1:
        return decline(f"both operands of {node.name} are the result that it follows")
    (other,) = others
    if other.node is not None and match.mask >> other.node.index & 1:
        return decline(f"the other operand of {node.name} is computed between the two")
    if _shape(node.results[0]) != _shape(value):
        return decline(f"{node.name} broadcasts the result that it follows", to=_shape(node.results[0]))
    if node.name == "relax.divide" and other is node.operands[0]:
        return decline("the result that it follows is the divisor")
    return True


def _tensors(node: BlockNode, operands: int = MAX_OPERANDS) -> bool | Decline:
    """Return whether the library supports the types of a node's tensors."""
    for value in (*node.operands[:operands], *node.results):
        kind = value.type
        if kind is None or kind.dtype.name != "f32":
            dtype = "no tensor" if kind is None else kind.dtype.name
            return decline(f"{value.name} of {node.name} is not f32", found=dtype)
        strange = [str(dim) for dim in kind.shape if not isinstance(dim, int) and not _is_polynomial(dim)]
        if strange:
            return decline("a dim is neither a number nor a sum of products of symbols", found=", ".join(strange))
        if kind.rank > MAX_RANK:
            return decline(f"tensors have at most {MAX_RANK} dims", found=str(kind))
        if 0 in kind.shape:
            return decline("a tensor is empty", found=str(kind))
    return True


def _first_no(result: bool | Decline, more: Callable[[], bool | Decline]) -> bool | Decline:
    return more() if result is True else result


def _shape(value: BlockValue) -> tuple[Dim, ...]:
    assert value.type is not None
    return tuple(value.type.shape)


def _is_polynomial(dim: SymbolicDim) -> bool:
    text = str(dim)
    return text != "?" and "(" not in text


def _dynamic_axes(value: BlockValue, axes: Iterable[int]) -> list[str]:
    """Return the dynamic dims at these axes."""
    shape = _shape(value)
    return [str(shape[axis]) for axis in axes if not isinstance(shape[axis], int)]
