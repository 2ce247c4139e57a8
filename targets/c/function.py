"""A region as C: a function on plain pointers, its workspace size, and a function on DLPack tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mirlo.dialects.core.dims import SymbolicDim
from mirlo.passes.byoc.view import ExternalFunction, ExternalNode, ExternalValue
from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import c_comment, c_identifier
from mirlo.targets.c.emit import load_emitters
from mirlo.targets.c.emit.elementwise import emit_chain, is_elementwise
from mirlo.targets.c.emit.movement import VIEWS, copy
from mirlo.targets.c.memory import Workspace
from mirlo.targets.c.types import c_dim, c_type, literal, symbol_name
from mirlo.targets.c.writer import Writer, element_type

INLINE_ELEMENTS = 64
"""Constants of at most this many elements are written into the source."""


class CError(MirloError, ValueError):
    """A region cannot be expressed in C."""


@dataclass
class CFunction:
    """The writer of a region's functions."""

    function: ExternalFunction
    params: Mapping[str, int]
    """The index of each external constant in the array `params`, by name."""
    writer: Writer = field(default_factory=Writer)

    def __post_init__(self) -> None:
        self.symbol = c_identifier(self.function.name)
        self.symbols = self._symbols()
        self.roots: dict[ExternalValue, ExternalValue] = {}
        for node in self.function.nodes:
            if node.op in VIEWS:
                self.roots[node.output] = self.root(node.inputs[0])
        self.steps = self._steps()
        self._name_values()

    def root(self, value: ExternalValue) -> ExternalValue:
        """Return the value whose memory a view shares."""
        return self.roots.get(value, value)

    # ----------------------------------------------------------------------------------------------------- the text

    def text(self) -> str:
        """Return the source of the functions."""
        workspace = Workspace.plan(self.function, self.steps, self.roots)
        body = self._body(workspace)
        size = "".join(f"{line}\n" for line in workspace.size_lines())
        arguments = ", ".join(f"int64_t {name}" for name in self.symbols.values()) or "void"
        head = f"/* Region '{c_comment(self.function.name)}'. */\n"
        sizes = f"size_t {self.symbol}_workspace({arguments}) {{\n{size}}}\n"
        return head + sizes + f"\n{self.declaration()} {{\n" + "\n".join(body) + f"\n}}\n\n{self._packed()}"

    def declaration(self) -> str:
        """Return the declaration `void c_0_run(params, symbols, inputs, outputs, workspace)`."""
        parts = ["const void *const *params"]
        parts += [f"int64_t {name}" for name in self.symbols.values()]
        parts += [f"const {element_type(v)} *{n}" for v, n in zip(self.function.inputs, self.inputs, strict=True)]
        parts += [f"{element_type(v)} *{n}" for v, n in zip(self.function.outputs, self.outputs, strict=True)]
        return f"void {self.symbol}_run({', '.join([*parts, 'void *workspace'])})"

    @property
    def prototypes(self) -> list[str]:
        """Return the prototypes for the header."""
        arguments = ", ".join(f"int64_t {name}" for name in self.symbols.values()) or "void"
        packed = f"int32_t {self.symbol}(void *params, DLTensor **tensors, int64_t count);"
        return [f"size_t {self.symbol}_workspace({arguments});", f"{self.declaration()};", packed]

    def _body(self, workspace: Workspace) -> list[str]:
        w = self.writer
        w.line("(void)params; (void)workspace;")
        for value in self.function.constants:
            w.line(self._constant(value))
        w.lines += workspace.pointer_lines(w.names)
        for value, name in self._views():
            const = "const " if self._is_read_only(value) else ""
            w.line(f"{const}{element_type(value)} *{name} = {w.names[self.root(value)]};")
        emitters = load_emitters()
        for step in self.steps:
            w.line()
            for node in step:
                w.line(f"/* {c_comment(_described(node))} */")
            with w.block(""):
                emit_chain(w, step) if is_elementwise(step[0].op) else emitters[step[0].op](w, step[0])
        for value, name in zip(self.function.outputs, self.outputs, strict=True):
            if w.names[value] != name:
                shown = ExternalValue(name, value.type)
                w.names[shown] = name
                copy(w, value, shown)
        return w.lines

    def _packed(self) -> str:
        """Return the function that generated code calls, on DLPack tensors."""
        lines = [f"int32_t {self.symbol}(void *params, DLTensor **tensors, int64_t count) {{", "  (void)count;"]
        for symbol, name in self.symbols.items():
            lines.append(f"  const int64_t {name} = {self._measured(symbol)};")
        symbols = list(self.symbols.values())
        values = (*self.function.inputs, *self.function.outputs)
        data = [f"({element_type(v)} *)MIRLO_DATA(tensors[{i}])" for i, v in enumerate(values)]
        call = ", ".join(["(const void *const *)params", *symbols, *data, "workspace"])
        lines += [
            f"  const size_t size = {self.symbol}_workspace({', '.join(symbols)});",
            "  void *workspace = size ? malloc(size) : NULL;",
            "  if (size && !workspace) return 1;",
            f"  {self.symbol}_run({call});",
            "  free(workspace);",
            "  return 0;",
            "}",
        ]
        return "\n".join(lines) + "\n"

    # ---------------------------------------------------------------------------------------------------- the values

    def _name_values(self) -> None:
        names = self.writer.names
        taken = {"params", "workspace", *self.symbols.values()}

        def fresh(wanted: str) -> str:
            name, count = wanted, 0
            while name in taken:
                count += 1
                name = f"{wanted}_{count}"
            taken.add(name)
            return name

        self.inputs = [fresh(f"in_{c_identifier(value.name)}") for value in self.function.inputs]
        names.update(zip(self.function.inputs, self.inputs, strict=True))
        self.outputs = [fresh(f"out{i}") for i in range(len(self.function.outputs))]
        for value, name in zip(self.function.outputs, self.outputs, strict=True):
            # A value that is returned twice, or is a view, is computed in its first output.
            if value not in names and value not in self.roots and value.constant is None:
                names[value] = name
        for value in self.function.constants:
            names[value] = fresh(f"const_{c_identifier(value.name)}")
        for node in self.function.nodes:
            for value in node.outputs:
                if value not in names:
                    names[value] = fresh(c_identifier(value.name))

    def _views(self) -> list[tuple[ExternalValue, str]]:
        return [(value, self.writer.names[value]) for value in self.roots]

    def _is_read_only(self, value: ExternalValue) -> bool:
        root = self.root(value)
        return root.producer is None

    def _constant(self, value: ExternalValue) -> str:
        """Return the declaration of a constant: its elements, or its pointer in `params`."""
        name, kind = self.writer.names[value], element_type(value)
        assert value.constant is not None
        if value.constant in self.params:
            return f"const {kind} *{name} = (const {kind} *)params[{self.params[value.constant]}];"
        array = value.array
        assert array is not None
        numbers = ", ".join(literal(number, value.type.dtype) for number in array.reshape(-1).tolist())
        return f"static const {kind} {name}[] = {{{numbers or '0'}}};"

    def _steps(self) -> list[list[ExternalNode]]:
        """Group nodes into steps: chains of elementwise operators of one shape; other nodes alone; views omitted."""
        inside = {node.output for node in self.function.nodes if self._is_fused_into_user(node)}
        steps: list[list[ExternalNode]] = []
        for node in self.function.nodes:
            if node.op not in VIEWS and not (is_elementwise(node.op) and node.output in inside):
                steps.append(self._chain(node, inside) if is_elementwise(node.op) else [node])
        return steps

    def _chain(self, node: ExternalNode, inside: set[ExternalValue]) -> list[ExternalNode]:
        """Return the chain of nodes that starts at a node, each the only user of the one before."""
        found: list[ExternalNode] = []
        for value in node.inputs:
            if value in inside and value.producer is not None and value.producer not in found:
                found += self._chain(value.producer, inside)
        return [*found, node]

    def _is_fused_into_user(self, node: ExternalNode) -> bool:
        if not is_elementwise(node.op) or len(node.output.users) != 1 or node.output in self.function.outputs:
            return False
        user = node.output.users[0]
        return is_elementwise(user.op) and user.output.type.shape == node.output.type.shape

    # --------------------------------------------------------------------------------------------------- the symbols

    def _symbols(self) -> dict[str, str]:
        """Return the variables of the symbols in shapes."""
        values = [*self.function.inputs, *(v for node in self.function.nodes for v in node.outputs)]
        found: set[str] = set()
        for value in values:
            for dim in value.type.shape:
                if isinstance(dim, SymbolicDim):
                    found |= dim.symbols()
        return {symbol: symbol_name(symbol) for symbol in sorted(found)}

    def _measured(self, symbol: str) -> str:
        """Return the C expression that reads a symbol's size from the shapes of the inputs."""
        for number, value in enumerate(self.function.inputs):
            for axis, dim in enumerate(value.type.shape):
                if isinstance(dim, SymbolicDim) and str(dim) == symbol:
                    return f"tensors[{number}]->shape[{axis}]"
        for number, value in enumerate(self.function.inputs):
            for axis, dim in enumerate(value.type.shape):
                if isinstance(dim, SymbolicDim) and dim.symbols() == {symbol} and _is_line(dim, symbol):
                    terms = dict(dim.terms)
                    return f"(tensors[{number}]->shape[{axis}] - {terms.get((), 0)}) / {terms[(symbol,)]}"
        raise CError(f"region '{self.function.name}': no input has the size '{symbol}' as a dim, so it cannot be known")


def _is_line(dim: SymbolicDim, symbol: str) -> bool:
    return set(dict(dim.terms)) <= {(), (symbol,)}


def _described(node: ExternalNode) -> str:
    shown = ", ".join(f"{c_type(v.type.dtype)}[{', '.join(map(c_dim, v.type.shape))}]" for v in node.outputs)
    name = f' "{node.name}"' if node.name else ""
    return f"{node.op}{name}: {shown}"


def is_small(array: np.ndarray) -> bool:
    """Return whether a constant is written into the source."""
    return bool(array.size <= INLINE_ELEMENTS)
