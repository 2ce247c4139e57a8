"""Import of an exported program: one function `@main` of relax operators, whose constants are the module's tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import (
    ENTRY_NAME,
    OPS,
    ImportedModule,
    OpError,
    ParameterStore,
    Tensor,
    TensorType,
    UnsupportedOperation,
    func,
    ir,
    make_context,
    mark_entry,
    named_value,
)
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import Complex
from mirlo.extend.runtime import unique_names
from mirlo_torch.complex_tensor import component, is_complex
from mirlo_torch.declared_names import load_converters
from mirlo_torch.decompose import decomposed
from mirlo_torch.errors import TorchImportError, UnsupportedAten
from mirlo_torch.graph import GraphImport
from mirlo_torch.promotion import element_type
from mirlo_torch.signature import written_buffers
from mirlo_torch.sizes import SizeConditions
from mirlo_torch.tensors import to_array

if TYPE_CHECKING:
    import torch
    from torch.export.graph_signature import InputSpec, OutputSpec

INLINE_ELEMENTS = 16
"""Size in bytes above which tensors of the module are kept in the parameter store."""


MakeWeight = Callable[[GraphImport, str, TensorType], object]
"""Returns the value of a parameter or a buffer by name and type; None for the program's own.

Converters receive the value unchanged: a tensor, or another object that they support.
"""


def import_exported_program(
    program: torch.export.ExportedProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    make_weight: MakeWeight | None = None,
    passed: Mapping[str, TensorType] | None = None,
    windows: Mapping[str, int] | None = None,
    pages: Mapping[str, str] | None = None,
) -> ImportedModule:
    """Import an `ExportedProgram` with these names of inputs and outputs; `make_weight` replaces weights.

    Parameters in `passed` are inputs after the others, with these types, which may have dynamic dims. `windows` are the
    tokens of the windows of inputs that are rings, `pages` what inputs are to attention with caches in pages.

    Raises a `FrontendError` that names the operator that has no converter and the line that calls it.
    """
    return ImportedModule(
        *import_exported(
            decomposed(program),
            checks=False,
            make_weight=make_weight,
            names=(inputs, outputs),
            passed=passed,
            windows=windows,
            pages=pages,
        )
    )


def import_exported(
    program: torch.export.ExportedProgram,
    name: str = "program",
    checks: bool = True,
    make_weight: MakeWeight | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    conditions: SizeConditions | None = None,
    passed: Mapping[str, TensorType] | None = None,
    windows: Mapping[str, int] | None = None,
    pages: Mapping[str, str] | None = None,
) -> tuple[ir.Module, ParameterStore]:
    """Import an `ExportedProgram` that is `decomposed`; calls check, if wanted, what PyTorch refuses of data.

    Buffers that it writes are inputs after the others; the new values of these, and of inputs that it writes, are
    further outputs. `names` are those of the inputs and the outputs; without them, those of the trace. Parameters in
    `passed` are inputs after all others, with these types. `windows` are those of inputs that are rings, `pages` what
    inputs are to attention with caches in pages.

    Raises `UnsupportedAten`, which names the operator that has no converter and the user's line.
    """
    load_converters()
    store = ParameterStore()
    with make_context(), ir.Location.file(name, 0, 0):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            body = GraphImport(name, store, checks)
            known = conditions or SizeConditions()
            _build_main(program, body, make_weight, names, known, passed or {}, windows or {}, pages or {})
    return module, store


def _results(
    body: GraphImport, specs: Iterable[OutputSpec], values: Iterable[object]
) -> tuple[list[str], list[ir.Value]]:
    """Return the names and the values of the results, except constants, which the caller sets."""
    from torch.export.graph_signature import ConstantArgument, OutputKind

    rows: dict[bool, list[tuple[str, ir.Value]]] = {False: [], True: []}
    for spec, value in zip(specs, values, strict=True):
        if spec.kind == OutputKind.TOKEN or isinstance(spec.arg, ConstantArgument):
            continue
        is_write = spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
        if spec.kind != OutputKind.USER_OUTPUT and not is_write:
            raise TorchImportError(f"{body.name}: has a result of kind {spec.kind.name}, which is not supported")
        whole = body.join_parts(value.re, value.im) if isinstance(value, Complex) else _result(body, value)
        name = f"new_{spec.target}" if is_write else spec.arg.name
        rows[is_write].append((name, body.full(whole)))
    names, kept = zip(*rows[False], *rows[True], strict=True) if rows[False] or rows[True] else ((), ())
    return list(names), list(kept)


def _build_main(
    program: torch.export.ExportedProgram,
    body: GraphImport,
    make_weight: MakeWeight | None,
    names: tuple[Sequence[str], Sequence[str]] | None,
    conditions: SizeConditions,
    passed: Mapping[str, TensorType],
    windows: Mapping[str, int],
    pages: Mapping[str, str],
) -> None:
    from torch.export.graph_signature import ConstantArgument, InputKind

    signature, name = program.graph_signature, body.name
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = list(signature.input_specs)
    user_inputs = [
        node for node, spec in zip(nodes, specs, strict=True)
        if spec.kind == InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument)
    ]  # fmt: skip
    buffers = {spec.target: node for node, spec in zip(nodes, specs, strict=True) if spec.kind == InputKind.BUFFER}
    input_nodes = [*user_inputs, *(buffers[each] for each in written_buffers(program))]
    body.sizes.assume(conditions.known)
    body.sizes.bind([size for node in input_nodes for size in getattr(node.meta.get("val"), "shape", ())])
    inputs = [(node, _input_type(body, node, name)) for node in input_nodes]
    by_target = {spec.target: node for node, spec in zip(nodes, specs, strict=True)}
    inputs += [(by_target[each], kind) for each, kind in passed.items()]
    body.taken.update(symbol for _, input_type in inputs for dim in input_type.shape for symbol in D.symbols_of(dim))
    function = func.FuncOp(ENTRY_NAME, ([input_type.to_mlir() for _, input_type in inputs], []))
    mark_entry(function)
    block = function.add_entry_block()
    with body.inside(block):
        values: dict[torch.fx.Node, object] = {
            node: _input(body, node, body.tensor(value))
            for (node, _), value in zip(inputs, block.arguments, strict=True)
        }
        constants = _Weights(program, body, make_weight)
        for node, spec in zip(nodes, specs, strict=True):
            if isinstance(spec.arg, ConstantArgument):
                values[node] = spec.arg.value
            elif spec.kind == InputKind.TOKEN:
                values[node] = None  # orders checks, which are imported in the order of the program
            elif node not in values:
                values[node] = constants.value(spec, node)
        try:
            _require_ranges(program, body)
            for condition in conditions.checked:
                body.require_nonnegative(body.sizes.differences(condition), f"what the trace assumes: {condition}")
            results = body.run(program.graph_module, values)
        except (UnsupportedOperation, OpError) as problem:
            raise UnsupportedAten("", f"{name}: {problem}") from None
        result_names, kept = _results(body, signature.output_specs, results)
        func.ReturnOp(kept)
    of_inputs, of_outputs = names or ([node.name for node, _ in inputs], result_names)
    if (len(of_inputs), len(of_outputs)) != (len(inputs), len(kept)):
        what = f"{len(inputs)} inputs and {len(kept)} outputs, found {len(of_inputs)} and {len(of_outputs)}"
        raise TorchImportError(f"{name}: expected names of {what}")
    _name_interface(function, of_inputs, of_outputs, [value.type for value in kept], windows, pages)


def _name_interface(
    function: func.FuncOp, inputs: Sequence[str], outputs: Sequence[str], types: Sequence[ir.Type],
    windows: Mapping[str, int], pages: Mapping[str, str],
) -> None:  # fmt: skip
    """Set the types of the results, the names of the inputs and the outputs, and what inputs are to attention."""
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(function.type.inputs, list(types)))
    if inputs:
        function.arg_attrs = ir.ArrayAttr.get(
            [named_value(name, windows.get(name), pages.get(name)) for name in inputs]
        )
    if outputs:
        function.attributes["res_attrs"] = ir.ArrayAttr.get([named_value(name) for name in unique_names(outputs)])


def _input_type(body: GraphImport, node: torch.fx.Node, name: str) -> TensorType:
    import torch

    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise UnsupportedAten("", f"{name}: input '{node.name}' is a {type(value).__name__}: expected a tensor")
    try:
        dims = body.sizes.dims(value.shape)
        parts = (2,) if is_complex(value.dtype) else ()
        return TensorType((*dims, *parts), element_type(component(value.dtype)))
    except UnsupportedOperation as problem:
        raise UnsupportedAten("", f"{name}: input '{node.name}' {problem}") from None


def _input(body: GraphImport, node: torch.fx.Node, whole: Tensor) -> object:
    """Return an input for operators; a complex one is stored as pairs in the last dim."""
    return Complex(*body.split_parts(whole)) if is_complex(node.meta["val"].dtype) else whole


class _Weights:
    """The tensors of a module as constants; those that share memory are one."""

    def __init__(
        self, program: torch.export.ExportedProgram, body: GraphImport, make_weight: MakeWeight | None
    ) -> None:
        self._program, self._body, self._make_weight = program, body, make_weight
        self._made: dict[tuple[object, ...], object] = {}

    def value(self, spec: InputSpec, node: torch.fx.Node) -> object:
        """Return the constant for an input that is a parameter, a buffer or a constant of the module."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        held = {**self._program.state_dict, **self._program.constants}.get(spec.target)
        if not isinstance(held, torch.Tensor) or isinstance(held, FakeTensor):
            raise UnsupportedAten("", f"'{node.name}' is a {type(held).__name__}, which is not supported")
        key = (
            held.data_ptr(),
            tuple(held.shape),
            held.stride(),
            held.dtype,
            held.is_conj(),
            held.numel() and id(held.untyped_storage()),
        )
        if key not in self._made:
            elsewhere = self._from_elsewhere(spec.target, held, node)
            self._made[key] = self._constant(spec.target, held, node) if elsewhere is None else elsewhere
        return self._made[key]

    def _from_elsewhere(self, name: str, held: torch.Tensor, node: torch.fx.Node) -> object:
        """Return the caller's replacement for a tensor of the module; None if there is none."""
        if self._make_weight is None or is_complex(held.dtype):
            return None
        with ir.Location.name(node.name):
            return self._make_weight(self._body, name, TensorType(tuple(held.shape), element_type(held.dtype)))

    def _constant(self, name: str, held: torch.Tensor, node: torch.fx.Node) -> Tensor | Complex:
        if is_complex(held.dtype):
            whole = held.detach().resolve_conj().resolve_neg()
            real, imaginary = (
                self._real(f"{name}.{part}", getattr(whole, part).contiguous(), node) for part in ("real", "imag")
            )
            return Complex(real, imaginary)
        return self._real(name, held, node)

    def _real(self, name: str, held: torch.Tensor, node: torch.fx.Node) -> Tensor:
        if held.device.type != "cpu":
            raise TorchImportError(f"the tensor '{name}' is on {held.device}: move the module to the CPU")
        type_ = TensorType(tuple(held.shape), element_type(held.dtype))
        array = to_array(held)
        if array.size <= INLINE_ELEMENTS:
            return self._body.constant(array.copy(), type_, type_.shape)
        with ir.Location.name(node.name):
            result = OPS["constant"].make(param=self._body.store.add_unique(name, array), result_types=[type_])
        return Tensor(self._body, type_, result, made=result, block=self._body.blocks[0])


def _require_ranges(program: torch.export.ExportedProgram, body: GraphImport) -> None:
    """Check in the call the ranges of sizes that the user declared, or that a condition of the code implies.

    A least size of 2 is the default of dynamic dims; smaller ones are computed as the larger ones are.
    """
    from torch.utils._sympy.numbers import int_oo

    for size, bounds in program.range_constraints.items():
        # A size is a symbol, or a multiple of one where the dims are given so: `2 * Dim("half")`.
        if not all(symbol.name in body.taken for symbol in size.free_symbols):
            continue
        dim = body.sizes.of_expression(size)
        if bounds.lower.is_Integer and int(bounds.lower) > 2:
            least = int(bounds.lower)
            body.require_nonnegative([dim - least], f"a size of at least {least} ('{size}')")
        if bounds.upper != int_oo and bounds.upper.is_Integer and int(bounds.upper) < 1 << 31:
            most = int(bounds.upper)
            body.require_nonnegative([most - dim], f"a size of at most {most} ('{size}')")


def _result(body: GraphImport, value: object) -> Tensor:
    """Return a result as a tensor; sizes are tensors of i64."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (int, D.SymbolicDim)) and not isinstance(value, bool):
        return body.known(TensorType.of((), "i64"), (value,))
    raise UnsupportedOperation(f"has a result that is {value!r}: expected a tensor or a size")
