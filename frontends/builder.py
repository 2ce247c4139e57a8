"""Building a relax function from a program of another framework: values, constants, sizes, branches and loops.

The front ends that read a program operation by operation (StableHLO, ATen) derive their import from `GraphBuilder`, and
their converters' view of an operation from `OperationView`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mirlo.dialects.bindings import arith, ir, scf, tensor
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import dense_attribute
from mirlo.dialects.core.dims import UNKNOWN, BroadcastDiffers, Dim
from mirlo.dialects.core.dtypes import DTYPES, DType, dtype, dtype_of_numpy
from mirlo.dialects.core.op import DialectOp, OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.frontends.sizes import MULTIPLE, broadcast_dim, broadcast_of, divisor_of
from mirlo.frontends.tensor import ONE_TENSOR, Like, Tensor, expected_tensors, iota, number, steps, where
from mirlo.runtime.callbacks import Expected, checked, each_is, optional
from mirlo.runtime.errors import nearest
from mirlo.runtime.params import ParameterStore

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

Result = TypeVar("Result")
"""What a branch makes: a tensor, or a value of a front end."""
Value = TypeVar("Value")
"""An input of an operation: a tensor, or a value of a front end."""
_VALUE = Expected("a value of MLIR", lambda value: isinstance(value, ir.Value))
_VALUES = Expected("a list of values of MLIR", each_is(_VALUE.holds))
_FUNCTION = Expected("a function from the results of a branch to the values that it yields", callable)
WRONG = -1
"""A size that signals an error: the one check of `relax.bind_dims` reports it."""
MAX_SIZE = float(1 << 62)
"""Sizes from here on are invalid: sums of a few of them would overflow i64."""
INLINE_ELEMENTS = 16
"""Larger constants are kept in the parameter store."""
OF_BOOLS = {
    "add": "logical_or", "multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}  # fmt: skip
"""By operator of numbers, the one that computes the same on bools."""


class UnsupportedOperation(Exception):
    """An operation that has no equivalent in relax, or not in this form."""


class GraphBuilder:
    """A function of relax that is being built."""

    def __init__(self, name: str, store: ParameterStore, source: Path | None = None) -> None:
        self.name = name
        self.store = store
        self.source = source
        """The file of the model, of which weights are views."""
        self.taken: set[str] = set()
        """Names of dims."""
        self.blocks: list[ir.Block] = []
        """The blocks that are being filled, outermost first."""
        self.placed: list[Tensor] = []
        """The tensors with an SSA value that was made for what is known of them, in order."""
        self.parameters: dict[tuple[object, ...], tuple[str, np.ndarray]] = {}
        """Parameter names by the address of the elements, so that a tensor is stored once. The arrays are kept, so
        that addresses are not reused."""
        self.stacks: dict[tuple[object, ...], tuple[str, Sequence[np.ndarray]]] = {}
        """The same of parameters that are stacked arrays."""
        self.symbols_of_loops: dict[tuple[object, ...], list[str]] = {}
        """Names of sizes that bodies of counted loops bind, by their bounds."""
        self.loop_symbols: set[str] | None = None
        """Those that the counted loops around have bound; None outside of such loops."""

    # Values

    def tensor(self, value: ir.Value) -> Tensor:
        """Wrap an SSA value of relax."""
        tensor_type = TensorType.from_mlir(value.type)
        assert tensor_type is not None, value.type
        return Tensor(self, tensor_type, value, made=value, block=self.blocks[-1])

    def full(self, tensor: Tensor) -> ir.Value:
        """Return the SSA value with the whole shape of a tensor."""
        if tensor.made is None or (tensor.block is not None and tensor.block not in self.blocks):
            with self.region(tensor.region):
                tensor.made, tensor.block = self._expanded(tensor), self.blocks[-1]
            self.placed.append(tensor)
        return tensor.made

    def compact(self, tensor: Tensor) -> ir.Value:
        """Return an SSA value that broadcasts to the shape of a tensor."""
        if tensor.value is not None:
            return tensor.value
        if tensor.array is not None and tensor.array.shape != tensor.shape:
            return self._constant(tensor, tensor.array)
        return self.full(tensor)

    def _expanded(self, tensor: Tensor) -> ir.Value:
        if tensor.compute is not None:
            return self.full(tensor.compute())
        if tensor.packed is not None:
            held = TensorType(tensor.packed.shape, DTYPES["u8"])
            packed = OPS["constant"].make(param=self._parameter(tensor, tensor.packed), result_types=[held])
            unpacked: ir.Value = OPS["unpack"].make(packed, dtype=tensor.dtype)
            return unpacked
        if tensor.slices is not None:
            param = self._stacked_parameter(tensor, tensor.slices)
            stacked: ir.Value = OPS["constant"].make(param=param, result_types=[tensor.type])
            return stacked
        if tensor.sizes is not None:
            return self._of_sizes(tensor.sizes, tensor.type)
        array = tensor.array
        if array is not None and array.size == tensor.type.elements:
            array = array.reshape(tensor.type.static_shape)
        value = tensor.value if tensor.value is not None else self._constant(tensor, array)
        tensor_type = TensorType.from_mlir(value.type)
        assert tensor_type is not None
        if tensor_type.shape == tensor.shape:
            return value
        expanded: ir.Value = OPS["expand"].make(value, shape=tensor.shape)
        return expanded

    def _of_sizes(self, sizes: tuple[Dim, ...], type_: TensorType) -> ir.Value:
        if all(isinstance(size, int) for size in sizes):
            return self.full(self.constant(np.array(sizes).reshape(type_.static_shape), type_))
        result = OPS["dims_tensor"].make(dims=sizes)
        if type_.dtype.name != "i64":
            result = OPS["cast"].make(result, dtype=type_.dtype)
        reshaped: ir.Value = result if type_.rank == 1 else OPS["reshape"].make(result, shape=type_.shape)
        return reshaped

    def _constant(self, tensor: Tensor, array: np.ndarray | None) -> ir.Value:
        assert array is not None
        held = TensorType(array.shape, tensor.dtype)
        if array.size > INLINE_ELEMENTS:
            attributes: dict[str, object] = {"param": self._parameter(tensor, array)}
        else:
            attributes = {"value": dense_attribute(_elements(array, tensor.dtype), held)}
        result: ir.Value = OPS["constant"].make(**attributes, result_types=[held])
        return result

    def _parameter(self, tensor: Tensor, array: np.ndarray) -> str:
        """Add elements to the parameter store, once; return their name: that in the model's file, if it is free."""
        view = array.__array_interface__
        layout = (view["data"][0], array.shape, array.strides, array.dtype, tensor.dtype.name)
        if layout not in self.parameters:
            name = tensor.parameter
            elements = array if tensor.packed is not None else _elements(array, tensor.dtype)
            if name and name not in self.store:
                self.store.add(name, elements, source=self.source)
            else:
                name = self.store.add_unique(tensor.name or "constant", elements)
            self.parameters[layout] = name, array
        return self.parameters[layout][0]

    def _stacked_parameter(self, tensor: Tensor, slices: Sequence[np.ndarray]) -> str:
        """Add arrays to the parameter store one after the other, once; return the name."""
        layout = tensor.dtype.name, *((each.__array_interface__["data"][0], each.strides) for each in slices)
        if layout not in self.stacks:
            elements = [_elements(each, tensor.dtype) for each in slices]
            self.stacks[layout] = self.store.add_stacked(tensor.name or "constant", elements), slices
        return self.stacks[layout][0]

    def split_parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the real and the imaginary part of complex numbers, of which a last dim of 2 holds both."""
        parts = OPS["split"].make(self.full(x), axis=x.rank - 1, sizes=(1, 1))
        real, imaginary = (self.tensor(OPS["reshape"].make(part, shape=x.shape[:-1])) for part in parts)
        return real, imaginary

    def join_parts(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """Return complex numbers as a real tensor, whose last dim holds the parts."""
        return self.tensor(OPS["stack"].make([self.full(real), self.full(imaginary)], axis=real.rank))

    def constant(
        self, array: npt.ArrayLike, like: Like | None = None, shape: Sequence[Dim] | None = None, name: str = ""
    ) -> Tensor:
        """Return a constant, with the element type and the shape of the array unless others are given.

        The array may have any shape that broadcasts. The constant becomes an operation when it is first an operand.
        """
        elements = np.asarray(array)
        kind = dtype_of_array(elements) if like is None else like
        element = kind.dtype if isinstance(kind, TensorType) else dtype(kind)
        elements = elements.astype(element.to_numpy(), copy=False)
        type_ = TensorType(elements.shape if shape is None else tuple(shape), element)
        return Tensor(self, type_, array=elements, name=name)

    def stack_constants(self, slices: Sequence[np.ndarray], dtype: str | DType, name: str = "") -> Tensor:
        """Return a constant of equal arrays one after the other along a new first dim, which are read when needed.

        The constant is outside of all regions. `gather` at one position reads a slice where it is.
        """
        type_ = TensorType.of((len(slices), *slices[0].shape), dtype)
        return Tensor(self, type_, slices=tuple(slices), name=name, region=0)

    def known(self, type_: TensorType, sizes: tuple[Dim, ...]) -> Tensor:
        """Return an integer tensor of known elements."""
        return Tensor(self, type_, sizes=sizes)

    # Operators

    def emit(self, operator: str | type[DialectOp], *operands: Any, **attributes: Any) -> Tensor:
        """Make an operator of one result, of relax by name or of a class; return its value.

        Operands are tensors or SSA values, or lists of them.
        """
        result, *others = self.emit_all(operator, *operands, **attributes)
        if others:
            raise ValueError(f"{operator} has {1 + len(others)} results: use `emit_all`")
        return result

    def emit_all(self, operator: str | type[DialectOp], *operands: Any, **attributes: Any) -> list[Tensor]:
        """Make an operator like `emit`; return its results, one or several."""
        cls = _operator_class(operator) if isinstance(operator, str) else operator
        return list(map(self.tensor, self.operation(cls, operands, attributes).operation.results))

    def operation(self, operator: type[DialectOp], operands: Sequence[Any], attributes: Mapping[str, Any]) -> ir.OpView:
        """Make an operation; operands are tensors or SSA values, or lists of them, or None.

        Operands that may broadcast in a call are expanded.
        """
        operands = list(map(self.operand, operands))
        while True:
            try:
                return operator.build(*operands, **attributes)
            except BroadcastDiffers as error:
                expanded = self._expanded_operands(operands, error)
                if expanded is None:
                    raise
                operands = expanded

    def _expanded_operands(self, operands: Sequence[Any], error: BroadcastDiffers) -> list[Any] | None:
        """Return the operands with broadcast axes expanded; None if they cannot be."""
        sides = (error.left, error.right)
        if any(side is UNKNOWN for side in sides) or all(isinstance(side, int) for side in sides):
            return None
        size = self._broadcast_of(error) if error.target is None else error.target
        expanded = [_expanded(operand, error, size) for operand in operands]
        return None if all(new is old for new, old in zip(expanded, operands, strict=True)) else expanded

    def _broadcast_of(self, error: BroadcastDiffers) -> Dim:
        """Return the dim that the operands broadcast to along the axis of the error; numbers are tried first."""
        dims = [shape[error.axis] for shape in error.shapes if -error.axis <= len(shape)]
        dims.sort(key=lambda dim: not isinstance(dim, int))
        return reduce(self.broadcast_dim, (dim for dim in dims if dim is not UNKNOWN))

    def broadcast_dim(self, left: Dim, right: Dim) -> Dim:
        """Return the dim that two dims broadcast to, each of which may be 1, or equal to the other."""
        dim = broadcast_dim(left, right)
        return self.broadcast_size((left, right)) if dim is None else dim

    def broadcast_size(self, dims: Collection[Dim]) -> Dim:
        """Return the broadcast dim if it is known only at run time which dims are 1."""
        return broadcast_of(dims)

    def operand(self, item: Any) -> Any:
        """Return the SSA value of a tensor, or those of a list; everything else as it is."""
        if isinstance(item, (list, tuple)):
            return [self.operand(each) for each in item]
        return self.full(item) if isinstance(item, Tensor) else item

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator without expanding any operand; bools have operators of their own."""
        if name in OF_BOOLS and operands[0].dtype.is_bool:
            name = OF_BOOLS[name]
        result = OPS[name].make(*map(self.compact, operands), **attributes)
        shape = broadcast_shape([operand.shape for operand in operands])
        tensor_type = TensorType.from_mlir(result.type)
        assert tensor_type is not None
        if tensor_type.shape == shape:
            return self.tensor(result)
        return Tensor(self, tensor_type.with_shape(shape), result)

    # Sizes that data determine

    def new_symbol(self, base: str) -> str:
        """Return a name for a dim that no other has."""
        number = 0
        while f"{base}_{number}" in self.taken:
            number += 1
        self.taken.add(f"{base}_{number}")
        return f"{base}_{number}"

    def symbol_of_data(self, base: str) -> tuple[str, Dim]:
        """Return a name that no dim has for a data-dependent size, and the dim that it must equal."""
        name = self.new_symbol(base)
        return name, D.symbol(name)

    def bind(
        self,
        tensor: Tensor,
        base: str,
        text: str = "",
        names: Sequence[str] | None = None,
        bounds: Sequence[Dim] | None = None,
    ) -> tuple[Dim, ...]:
        """Bind symbols to the elements of a tensor that holds sizes known at run time, of at most `bounds`.

        The symbols have these names, or such that resemble `base`. The text describes the sizes in errors of calls; one
        that must equal another dim, or be a multiple of a number, is tested in the call.
        """
        count = tensor.type.elements
        if not isinstance(count, int):
            raise UnsupportedOperation("the number of dims must be known")
        if not count:
            return ()
        text = text or f"a size of '{base}'"
        values = tensor.cast("i64").reshape((count,))
        pairs: list[tuple[str, Dim]] = [(name, D.symbol(name)) for name in names or ()]
        pairs = pairs or self._symbols_of_loop(base, count, bounds) or [self.symbol_of_data(base) for _ in range(count)]
        symbols, dims = [name for name, _ in pairs], [dim for _, dim in pairs]
        divisors = [divisor_of(dim) for dim in dims]
        if any(divisor is not None for divisor in divisors):
            symbols, values = self._quotients(values, pairs, divisors)
            numbers = " x ".join("1" if divisor is None else str(divisor) for divisor in divisors)
            text += f", or its size is no multiple of {numbers}, which other nodes need"
        solved = [
            divisor is None and dim != D.symbol(name)
            for name, dim, divisor in zip(symbols, dims, divisors, strict=True)
        ]
        if any(solved):
            expected = self.size_vector([dim if is_solved else 0 for dim, is_solved in zip(dims, solved, strict=True)])
            free = self.constant([not is_solved for is_solved in solved])
            values = where(values.equals(expected) | free, values, WRONG)
            needed = " x ".join(str(dim) if is_solved else "any" for dim, is_solved in zip(dims, solved, strict=True))
            text += f", or its size is not {needed}, which other nodes need"
        limits = [
            bound if divisor is None or bound is UNKNOWN else bound // divisor
            for bound, divisor in zip(bounds or [UNKNOWN] * count, divisors, strict=True)
        ]
        OPS["bind_dims"].build(self.full(values), symbols=symbols, bounds=limits, what=text, result_types=[])
        return tuple(dims)

    def _symbols_of_loop(self, base: str, count: int, bounds: Sequence[Dim] | None) -> list[tuple[str, Dim]]:
        """Return names of sizes in the body of a counted loop: those that another loop has for sizes of these bounds.

        No size of a body is seen outside of it, and the bodies of equal layers are equal so.
        """
        if self.loop_symbols is None or bounds is None:
            return []
        known = self.symbols_of_loops.setdefault((base, *bounds), [])
        free = [name for name in known if name not in self.loop_symbols][:count]
        while len(free) < count:
            free.append(self.new_symbol(base))
            known.append(free[-1])
        self.loop_symbols.update(free)
        return [(name, D.symbol(name)) for name in free]

    def _quotients(
        self, values: Tensor, pairs: Sequence[tuple[str, Dim]], divisors: Sequence[int | None]
    ) -> tuple[list[str], Tensor]:
        """Return what to bind instead of sizes that must be multiples: the symbols of their quotients."""
        numbers = self.constant([divisor or 1 for divisor in divisors], "i64")
        quotients = values // numbers
        whole = (quotients * numbers).equals(values)
        symbols = [
            name if divisor is None else next(iter(D.symbols_of(dim)))
            for (name, dim), divisor in zip(pairs, divisors, strict=True)
        ]
        return symbols, where(whole, quotients, WRONG)

    def size_vector(self, dims: Sequence[Dim], dtype: str = "i64") -> Tensor:
        """Return dims as a vector."""
        return self.known(TensorType.of((len(dims),), dtype), tuple(dims))

    def require_nonnegative(self, sizes: Sequence[Dim], message: str) -> None:
        """Check in the call that sizes are not negative; an error contains the message."""
        if not all(D.is_nonnegative(size) for size in sizes):
            OPS["require_dims"].build(dims=tuple(sizes), what=message, result_types=[])

    def require_values(self, values: Tensor, count: int, message: str) -> None:
        """Check in the call that the elements of a vector of i64 are not negative; an error contains the message."""
        names = [self.new_symbol("checked") for _ in range(count)]
        OPS["bind_dims"].build(
            self.full(values), symbols=names, bounds=[UNKNOWN] * count, what=message, result_types=[]
        )

    # Regions

    @property
    def depth(self) -> int:
        """Return the number of open regions inside of the function."""
        return len(self.blocks) - 1

    @contextmanager
    def region(self, depth: int | None) -> Iterator[None]:
        """Insert into the enclosing region of this depth, before the operation with the current region.

        None stands for the current region.
        """
        if depth is None or depth >= self.depth:
            yield
            return
        inner = self.blocks[depth + 1 :]
        del self.blocks[depth + 1 :]
        try:
            with ir.InsertionPoint(inner[0].owner):
                yield
        finally:
            self.blocks += inner

    @contextmanager
    def inside(self, block: ir.Block) -> Iterator[None]:
        """Insert at the end of a block of a region."""
        self.blocks.append(block)
        try:
            with ir.InsertionPoint(block):
                yield
        finally:
            self.blocks.pop()

    def count_operators(self, build: Callable[[], object]) -> int:
        """Return how many operators a function makes; what it builds is discarded."""
        draft = ir.Operation.create("scf.execute_region", regions=1)
        block, placed = draft.regions[0].blocks.append(), len(self.placed)
        try:
            with self.inside(block):
                build()
            return len(block.operations)
        finally:
            for tensor in self.placed[placed:]:
                tensor.made = None
            del self.placed[placed:]
            draft.erase()

    def choose(
        self, flag: Tensor, types: Sequence[TensorType], branches: Sequence[Callable[[], Sequence[Tensor]]]
    ) -> list[Tensor]:
        """Make an scf.if of what two functions build, for a flag of rank 0.

        Dims of the declared types with symbols that are not bound yet may differ in the branches; they are bound here.
        """
        axes = [
            [axis for axis, dim in enumerate(declared.shape) if D.symbols_of(dim) - self.taken] for declared in types
        ]
        expected = [
            declared.with_shape(
                [UNKNOWN if axis in erased else dim for axis, dim in enumerate(declared.shape)]
            ).to_mlir()
            for declared, erased in zip(types, axes, strict=True)
        ]

        def yielded(results: Sequence[Tensor]) -> list[ir.Value]:
            values = [self._without_dims(self.full(x), erased) for x, erased in zip(results, axes, strict=True)]
            for value, wanted in zip(values, expected, strict=True):
                if value.type != wanted:
                    raise UnsupportedOperation(f"has a branch that gives {value.type}, where {wanted} is declared")
            return values

        checked_branches = [
            checked(branch, expected_tensors(len(types)), "a branch", UnsupportedOperation) for branch in branches
        ]
        branch_results = self.branches(self.full(flag), checked_branches, lambda one, other: yielded)
        return [
            self._with_dims(value, declared, erased)
            for value, declared, erased in zip(branch_results, types, axes, strict=True)
        ]

    def branches(
        self,
        flag: ir.Value,
        fills: Sequence[Callable[[], Sequence[Result]]],
        join: Callable[[Sequence[Result], Sequence[Result]], Callable[[Sequence[Result]], list[ir.Value]]],
    ) -> list[ir.Value]:
        """Make an scf.if of what two functions build, for a flag of rank 0; return its results.

        `join` gets the results of both functions, and returns a function from the results of a branch to the values
        that the branch yields: their types may depend on both branches.
        """
        condition = tensor.ExtractOp(flag, []).result
        # An operation cannot gain results: the branches are built in a temporary operation and moved.
        draft = scf.IfOp(condition, has_else=True)
        blocks = [region.blocks[0] for region in draft.operation.regions]
        results: list[Sequence[Result]] = []
        try:
            for block, fill in zip(blocks, fills, strict=True):
                with self.inside(block):
                    results.append(fill())
            yielded = checked(join, _FUNCTION, "branches", UnsupportedOperation)(results[0], results[1])
            for block, each in zip(blocks, results, strict=True):
                with self.inside(block):
                    scf.YieldOp(checked(yielded, _VALUES, "branches", UnsupportedOperation)(each))
        except BaseException:
            draft.operation.erase()  # an import that goes on in another way leaves no half of an operation
            raise
        types = [value.type for value in list(blocks[0].operations)[-1].operands]
        op = ir.Operation.create("scf.if", operands=[condition], results=types, regions=2)
        for region, block in zip(op.regions, blocks, strict=True):
            block.append_to(region)
        draft.operation.erase()
        return list(op.results)

    def _without_dims(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        return OPS["erase_dims"].make(value, axes=axes) if axes else value

    def _with_dims(self, value: ir.Value, declared: TensorType, axes: Sequence[int]) -> Tensor:
        """Return a tensor whose erased dims are bound: to the symbols of the declared type where these are single."""
        symbols = []
        for dim in (declared.shape[axis] for axis in axes):
            name = str(dim)
            is_free = D.is_symbol_name(name) and name not in self.taken
            symbols.append(name if is_free else self.new_symbol("branch"))
            self.taken.add(symbols[-1])
        return self.tensor(OPS["match_dims"].make(value, symbols=symbols) if axes else value)

    def repeat(
        self,
        carried: Sequence[Tensor],
        condition: Callable[[list[Tensor]], Tensor],
        body: Callable[[list[Tensor]], Sequence[Tensor]],
    ) -> list[Tensor]:
        """Make an scf.while: what it carries keeps its shape."""
        inits = [self.full(value) for value in carried]
        condition = checked(condition, ONE_TENSOR, "the condition of a loop", UnsupportedOperation)
        body = checked(body, expected_tensors(len(inits)), "the body of a loop", UnsupportedOperation)

        def goes_on(arguments: list[ir.Value]) -> ir.Value:
            return self.full(condition([self.tensor(value) for value in arguments]))

        def following(arguments: list[ir.Value]) -> list[ir.Value]:
            values = [self.full(value) for value in body([self.tensor(value) for value in arguments])]
            for index, (value, init) in enumerate(zip(values, inits, strict=True)):
                if value.type != init.type:
                    raise OpError(f"carries value {index} as {init.type}, but its body makes it {value.type}")
            return values

        return list(map(self.tensor, self.loop_while(inits, goes_on, following) or ()))

    def repeat_times(
        self, count: int, carried: Sequence[Tensor], body: Callable[[Tensor, list[Tensor]], Sequence[Tensor]]
    ) -> list[Tensor]:
        """Make an scf.for of this many iterations; `body` takes the number of one, an i64 without dims.

        What the loop carries keeps its shape.
        """
        inits = [self.full(value) for value in carried]
        body = checked(body, expected_tensors(len(inits)), "the body of a loop", UnsupportedOperation)
        first, end, step = (arith.ConstantOp(ir.IndexType.get(), each).result for each in (0, count, 1))
        types, i64 = [value.type for value in inits], ir.IntegerType.get_signless(64)
        op = ir.Operation.create("scf.for", operands=[first, end, step, *inits], results=types, regions=1)
        block = op.regions[0].blocks.append(ir.IndexType.get(), *types)
        outside = self.loop_symbols
        self.loop_symbols = set(outside or ())
        try:
            with self.inside(block):
                at = arith.IndexCastOp(i64, block.arguments[0]).result
                position = self.tensor(tensor.FromElementsOp(TensorType.of((), "i64").to_mlir(), [at]).result)
                values = body(position, [self.tensor(value) for value in list(block.arguments)[1:]])
                yielded = [self.full(value) for value in values]
                for index, (value, init) in enumerate(zip(yielded, inits, strict=True)):
                    if value.type != init.type:
                        raise OpError(f"carries value {index} as {init.type}, but its body makes it {value.type}")
                scf.YieldOp(yielded)
        except BaseException:
            op.erase()
            raise
        finally:
            self.loop_symbols = outside
        return list(map(self.tensor, op.results))

    def loop_while(
        self,
        inits: Sequence[ir.Value],
        condition: Callable[[list[ir.Value]], ir.Value],
        body: Callable[[list[ir.Value]], list[ir.Value] | None],
    ) -> list[ir.Value] | None:
        """Make an scf.while and return its results; the condition gives a flag of rank 0.

        If the body returns None, what it built is discarded, and the result is None.
        """
        condition = checked(condition, _VALUE, "the condition of a loop", UnsupportedOperation)
        is_result = optional(lambda values: _VALUES.holds(values) and len(values) == len(inits))
        expected = Expected(f"a list of {len(inits)} values of MLIR, or None", is_result)
        body = checked(body, expected, "the body of a loop", UnsupportedOperation)
        types = [value.type for value in inits]
        op = ir.Operation.create("scf.while", operands=list(inits), results=types, regions=2)
        before, after = (region.blocks.append(*types) for region in op.regions)
        try:
            with self.inside(before):
                flag = tensor.ExtractOp(condition(list(before.arguments)), []).result
                scf.ConditionOp(flag, list(before.arguments))
            with self.inside(after):
                values = body(list(after.arguments))
                if values is not None:
                    scf.YieldOp(values)
        except BaseException:
            op.erase()
            raise
        if values is None:
            op.erase()
            return None
        return list(op.results)


class OperationView:
    """A converter's view of an operation: emission of relax operators."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def emit(self, operator: str | type[DialectOp], *operands: Any, **attributes: Any) -> Tensor:
        """Make an operator of one result, of relax by name or of a class; return its value.

        Operands are tensors or SSA values, or lists of them. Those that may broadcast in a call are expanded.
        """
        return self.builder.emit(operator, *operands, **attributes)

    def emit_all(self, operator: str | type[DialectOp], *operands: Any, **attributes: Any) -> list[Tensor]:
        """Make an operator like `emit`; return its results, one or several."""
        return self.builder.emit_all(operator, *operands, **attributes)

    def tensor(self, value: ir.Value) -> Tensor:
        """Wrap an SSA value."""
        return self.builder.tensor(value)

    def constant(self, array: npt.ArrayLike, like: Like | None = None, shape: Sequence[Dim] | None = None) -> Tensor:
        """Return a constant, with the element type and the shape of the array unless others are given."""
        return self.builder.constant(array, like, shape)

    def sizes(self, dims: Sequence[Dim], dtype: str = "i64") -> Tensor:
        """Return dims as a vector."""
        return self.builder.size_vector(dims, dtype)

    def size(self, dim: Dim) -> Tensor:
        """Return a dim as an i64 without dims."""
        return number(self.builder, dim, DTYPES["i64"])

    def index_vector(self, count: Dim) -> Tensor:
        """Return 0, 1, 2, ... as an i64 vector."""
        return iota(self.builder, count)

    def positions(self, type_: TensorType, axis: int) -> Tensor:
        """Return a tensor that holds each element's index along an axis."""
        dtype = type_.dtype if type_.dtype.bits >= 32 and type_.dtype.is_integer else TensorType.of((), "i64").dtype
        start, step = (self.constant(number, dtype) for number in (0, 1))
        row = steps(start, step, type_.shape[axis])
        if type_.dtype is not dtype:
            row = row.cast(type_.dtype)
        inner = type_.rank - axis - 1
        if inner:
            row = row.reshape((type_.shape[axis], *[1] * inner))
        return row.expand(type_.shape)

    def position_of_extreme(self, kind: str, x: Tensor, axis: int, keepdims: bool) -> Tensor:
        """Return the first position of the maximum ('max') or minimum ('min'); the first NaN wins over numbers."""
        if x.dtype.is_bool:
            x = x.cast("i8")
        position = x.argmax(axis, keepdims) if kind == "max" else x.argmin(axis, keepdims)
        if not x.dtype.is_float:
            return position
        nans = x.isnan().cast("i8")
        return where(nans.max(axis, keepdims).cast("bool"), nans.argmax(axis, keepdims), position)


def dtype_of_array(array: np.ndarray) -> DType:
    """Return the element type of an array."""
    result = dtype_of_numpy(array.dtype)
    if result is None:
        raise ValueError(f"no element type for numpy's {array.dtype}")
    return result


def _operator_class(name: str) -> type[DialectOp]:
    """Return the class of a relax operator."""
    result = OPS.get(name)
    if result is None:
        raise ValueError(f"relax has no operator '{name}'{nearest(name, OPS)}")
    return result


def _elements(array: np.ndarray, dtype: DType) -> np.ndarray:
    return np.asarray(array).astype(dtype.to_numpy(), copy=False)


def _expanded(operand: Any, error: BroadcastDiffers, size: Dim) -> Any:
    """Return an operand expanded to this size along the axis of a broadcasting error, if it broadcasts there."""
    tensor_type = TensorType.from_mlir(operand.type) if hasattr(operand, "type") else None
    if tensor_type is None or tensor_type.shape not in error.shapes or -error.axis > tensor_type.rank:
        return operand
    shape = list(tensor_type.shape)
    if shape[error.axis] in (1, size):
        return operand
    shape[error.axis] = size
    return OPS["expand"].make(operand, shape=tuple(shape))


def assume_equal(left: Dim, right: Dim, inputs: Sequence[Value], what: str) -> list[Value | Tensor] | None:
    """Return the inputs of an operation with one of two dims replaced by the other, each as a view.

    The call checks that the dims are equal: element counts are also equal where another dim is 0. An error contains
    `what`. Return None if no input has such a dim.
    """
    if left is UNKNOWN or right is UNKNOWN or isinstance(left - right, int):
        return None
    if any(name.endswith(MULTIPLE) for dim in (left, right) for name in D.symbols_of(dim)):
        return None
    for old, new in ((left, right), (right, left)):
        affected = [isinstance(value, Tensor) and value.known is None and old in value.type.shape for value in inputs]
        if not isinstance(old, int) and any(affected):
            OPS["require_dims"].build(dims=(old, new), bounds=(new, old), what=what, result_types=[])
            return [
                _with_dim(value, old, new) if f and isinstance(value, Tensor) else value
                for value, f in zip(inputs, affected, strict=True)
            ]
    return None


def _with_dim(value: Tensor, old: Dim, new: Dim) -> Tensor:
    shape = tuple(new if dim == old else dim for dim in value.shape)
    result = value.reshape(shape)
    result.name, result.region = value.name, value.region
    return result


def sizes_if(holds: Tensor, values: Tensor) -> Tensor:
    """Return sizes where all of these conditions hold, else invalid sizes."""
    return where(holds.all() if holds.rank else holds, values, WRONG)


def as_sizes(values: Tensor) -> Tensor:
    """Convert f64 to i64; values that are not sizes, such as NaN, become invalid sizes."""
    return where(_is_small(values), values.cast("i64"), WRONG)


def sum_fits(*terms: Tensor) -> Tensor:
    """Return whether the sum of these integers fits i64."""
    return _is_small(reduce(lambda x, y: x + y, [term.cast("f64") for term in terms]))


def _is_small(values: Tensor) -> Tensor:
    return abs(values) < MAX_SIZE


def broadcast_shape(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Return the shape that shapes broadcast to, where each dim is 1 or that of the result."""
    rank = max(map(len, shapes), default=0)
    dims: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            if not (isinstance(dim, int) and dim == 1):
                dims[axis] = dim
    return tuple(dims)
