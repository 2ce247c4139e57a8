"""Import of function bodies: operations are converted in order, calls in place, regions where their operation is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dense import dense_attribute
from mirlo.dialects.core.dims import UNKNOWN, Dim
from mirlo.dialects.core.locations import describe
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.frontends.stablehlo.errors import StablehloImportError, UnsupportedOperation
from mirlo.frontends.stablehlo.operation import StablehloOperation
from mirlo.frontends.stablehlo.registry import CONVERTERS, REFUSED
from mirlo.frontends.stablehlo.sizes import evaluate
from mirlo.frontends.stablehlo.tensor import Tensor
from mirlo.runtime.names import terminal
from mirlo.runtime.params import ParameterStore

INLINE_ELEMENTS = 16
"""Larger constants are kept in the parameter store."""
MAX_OPERATIONS = 200_000
"""Operations that calls may come to, as they are copied at each place."""
MAX_DEPTH = 100
Scope = Mapping[ir.Value, Tensor]
RETURNS = ("func.return", "stablehlo.return")


class ProgramImport:
    """The import of one program."""

    def __init__(self, name: str, store: ParameterStore, functions: Mapping[str, ir.Operation]) -> None:
        self.name = name
        self.store = store
        self.functions = functions
        self.taken: set[str] = set()
        """Names of dims."""
        self.blocks: list[ir.Block] = []
        """The blocks that are being filled, outermost first."""
        self.calls: list[str] = []
        self.lifted = 0
        """The depth of regions on scalars that are being applied to whole tensors."""
        self._count = 0
        self._constants: dict[int, tuple[np.ndarray, str]] = {}

    # Operations

    def call(self, name: str, operands: Sequence[Tensor]) -> list[Tensor]:
        """Import a function's body here."""
        function = self.functions.get(name)
        if function is None:
            raise UnsupportedOperation(f"calls @{name}, which the module does not have")
        if name in self.calls or len(self.calls) >= MAX_DEPTH:
            raise UnsupportedOperation(f"calls @{name}, which calls itself: @{' -> @'.join((*self.calls, name))}")
        blocks = list(function.regions[0].blocks)
        if len(blocks) != 1:
            raise UnsupportedOperation(f"calls @{name}, which has {len(blocks) or 'no'} blocks: expected one")
        self.calls.append(name)
        try:
            return self.block(blocks[0], operands, {})
        finally:
            self.calls.pop()

    def block(self, block: ir.Block, operands: Sequence[Tensor], scope: Scope) -> list[Tensor]:
        """Import the operations of a block for these arguments; return what it returns."""
        if len(block.arguments) != len(operands):
            raise UnsupportedOperation(f"a block takes {len(block.arguments)} values, found {len(operands)}")
        inner = dict(scope)
        inner.update(zip(block.arguments, operands, strict=True))
        for op in block.operations:
            operation = op.operation
            if operation.name in RETURNS:
                return [inner[value] for value in operation.operands]
            made = self._converted(operation, inner)
            inner.update(zip(operation.results, made, strict=True))
        raise UnsupportedOperation("a block ends without a return")

    def _converted(self, op: ir.Operation, scope: Scope) -> list[Tensor]:
        self._count += 1
        if self._count > MAX_OPERATIONS:
            raise self._problem(op, f"calls, copied at each place, come to more than {MAX_OPERATIONS} operations")
        name = op.name.removeprefix("stablehlo.").removeprefix("func.")
        try:
            view = StablehloOperation(op, name, [scope[value] for value in op.operands], self)
            view.scope = scope
            folded = evaluate(view)
            if folded is not None:
                return [folded]
            convert = CONVERTERS.get(name)
            if convert is None:
                raise UnsupportedOperation(REFUSED.get(name, "is not supported"))
            with op.location:
                made = convert(view)
            found = [made] if isinstance(made, Tensor) else list(made)
            if len(found) != len(op.results):
                raise UnsupportedOperation(f"has {len(op.results)} results, its conversion gives {len(found)}")
            for index, tensor in enumerate(found if not self.lifted else ()):
                self._require_declared(view, index, tensor)
            return found
        except (UnsupportedOperation, OpError) as problem:
            raise self._problem(op, str(problem)) from None

    def _require_declared(self, view: StablehloOperation, index: int, made: Tensor) -> None:
        declared = view.declared(index)
        agree = len(declared.shape) == len(made.shape) and all(
            said == is_ for said, is_ in zip(declared.shape, made.shape, strict=True)
            if isinstance(said, int) and isinstance(is_, int)
        )  # fmt: skip
        if declared.dtype is not made.type.dtype or not agree:
            raise UnsupportedOperation(f"is declared {declared}, but its operands make it {made.type}")

    def _problem(self, op: ir.Operation, text: str) -> StablehloImportError:
        operands = ", ".join(str(value.type) for value in op.operands)
        where = describe(op.location, terminal)
        return StablehloImportError(
            f"{self.name}: operation '{op.name}' at {where}: {text} [operands: {operands or 'none'}]"
        )

    # Values

    def tensor(self, value: ir.Value) -> Tensor:
        """Wrap an SSA value of relax."""
        found = TensorType.from_mlir(value.type)
        assert found is not None, value.type
        return Tensor(found, value, made=value, block=self.blocks[-1])

    def full(self, tensor: Tensor) -> ir.Value:
        """Return the SSA value with the whole shape of a tensor."""
        if tensor.made is None or (tensor.block is not None and tensor.block not in self.blocks):
            tensor.made, tensor.block = self._expanded(tensor), self.blocks[-1]
        return tensor.made

    def compact(self, tensor: Tensor) -> ir.Value:
        """Return an SSA value that broadcasts to the shape of a tensor."""
        if tensor.value is not None:
            return tensor.value
        if tensor.array is not None and tensor.array.shape != tensor.shape:
            return self._constant(tensor.array, tensor.type)
        return self.full(tensor)

    def _expanded(self, tensor: Tensor) -> ir.Value:
        if tensor.sizes is not None:
            return self._of_sizes(tensor.sizes, tensor.type)
        value = tensor.value if tensor.value is not None else self._constant(tensor.array, tensor.type)
        found = TensorType.from_mlir(value.type)
        assert found is not None
        if found.shape == tensor.shape:
            return value
        return OPS["expand"].make(value, shape=tensor.shape)

    def _of_sizes(self, sizes: tuple[Dim, ...], type_: TensorType) -> ir.Value:
        if all(isinstance(size, int) for size in sizes):
            return self._constant(np.array(sizes).reshape(type_.static_shape), type_)
        made = OPS["dims_tensor"].make(dims=sizes)
        if type_.dtype.name != "i64":
            made = OPS["cast"].make(made, dtype=type_.dtype)
        return made if type_.rank == 1 else OPS["reshape"].make(made, shape=type_.shape)

    def _constant(self, array: np.ndarray | None, type_: TensorType) -> ir.Value:
        assert array is not None
        held = TensorType(array.shape, type_.dtype)
        given = np.asarray(array).astype(type_.dtype.to_numpy(), copy=False)
        if given.size <= INLINE_ELEMENTS:
            return OPS["constant"].make(value=dense_attribute(given, held), result_types=[held])
        key = id(array)
        if key not in self._constants:
            self._constants[key] = array, self.store.add_unique("constant", given)
        return OPS["constant"].make(param=self._constants[key][1], result_types=[held])

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator on tensors of one shape, or of rank 0, without expanding any."""
        made = OPS[name].make(*map(self.compact, operands), **attributes)
        shape: tuple[Dim, ...] = max((operand.shape for operand in operands), key=len)
        found = TensorType.from_mlir(made.type)
        assert found is not None
        if found.shape == shape:
            return self.tensor(made)
        return Tensor(found.with_shape(shape), made)

    # Sizes that data determine

    def new_symbol(self, base: str) -> str:
        """Return a name for a dim that no other has."""
        number = 0
        while f"{base}_{number}" in self.taken:
            number += 1
        self.taken.add(f"{base}_{number}")
        return f"{base}_{number}"

    def bind(self, tensor: Tensor, what: str) -> tuple[Dim, ...]:
        """Bind symbols to the elements of a tensor that holds sizes known at run time."""
        if not isinstance(tensor.type.elements, int):
            raise UnsupportedOperation("the number of dims must be known")
        count = tensor.type.elements
        values = OPS["cast"].make(self.full(tensor), dtype="i64")
        values = OPS["reshape"].make(values, shape=(count,))
        names = [self.new_symbol(what) for _ in range(count)]
        OPS["bind_dims"].build(
            values, symbols=names, bounds=[UNKNOWN] * count, what=f"a size of '{what}'", result_types=[]
        )
        return tuple(D.symbol(name) for name in names)

    @contextmanager
    def inside(self, block: ir.Block) -> Iterator[None]:
        """Insert at the end of a block of a region."""
        self.blocks.append(block)
        try:
            with ir.InsertionPoint(block):
                yield
        finally:
            self.blocks.pop()
