"""A stage of a graph as an exported program, with the sizes of the trace.

The stage was traced with sizes that are expressions of a few symbols. The program has these expressions, so that what
is known of them, `2 * s` of one tensor and `s` of another, is known when it is compiled. Tracing it anew would give
each dim a symbol of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirlo.extend.frontend import FrontendError
from mirlo_torch.backend.strides import hint, memory_order, sparse_strides
from mirlo_torch.sizes import SizeExpression

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

LEAST_NUMBER = 0
"""Smallest numeric input that can be passed to an executable, as the length of an array."""


class StageProgram:
    """A stage prepared for the import: weights are buffers, and numbers are read as sizes of tensors."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        fake_inputs: Sequence[torch.Tensor | torch.SymInt],
        frozen: Mapping[int, torch.Tensor],
    ) -> None:
        import torch

        self._fake_inputs = fake_inputs
        self._module = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        self._graph = self._module.graph
        self._nodes = [node for node in self._graph.nodes if node.op == "placeholder"]
        self._mode = _fake_mode(fake_inputs, self._graph)
        self._guards_before = len(self._guards())
        for node, value in zip(self._nodes, fake_inputs, strict=True):
            node.meta["val"] = value
        # Inputs, and sizes of them, may be read before the graph's own operations.
        self._first_operation = next(node for node in self._graph.nodes if node.op != "placeholder")
        self._weights: dict[str, torch.Tensor] = {}
        positions = []
        for index, (node, value) in enumerate(zip(self._nodes, fake_inputs, strict=True)):
            if index in frozen:
                self._add_weight(node, f"weight_{index}", frozen[index].detach())
            elif isinstance(value, torch.Tensor):
                if value.device.type != "cpu":
                    raise FrontendError(
                        f"input {index} of the graph is on {value.device}: only the CPU is compiled for"
                    )
                positions.append(index)
        self.positions = tuple(positions)
        """The positions of the inputs of the program, in its order."""
        self.numbers: list[int] = []
        """The positions of numeric inputs, passed as empty arrays of that length."""
        for index, (node, value) in enumerate(zip(self._nodes, fake_inputs, strict=True)):
            if index not in frozen and not isinstance(value, torch.Tensor):
                self._replace_size(node, index, value)
        self.positions = (*self.positions, *self.numbers)
        self._add_constants()
        self._trace_values()
        self.orders = self._take_orders()
        """Dims in memory order, the outermost first, of inputs that are passed without a copy, by position."""
        self.results = self._take_results()
        """The kind of each result of the stage."""

    def exported(self) -> torch.export.ExportedProgram:
        """Return the program."""
        from torch._export.verifier import TrainingIRVerifier
        from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
        from torch.export.graph_signature import (
            ExportGraphSignature,
            InputKind,
            InputSpec,
            OutputKind,
            OutputSpec,
            TensorArgument,
        )
        from torch.utils import _pytree as pytree

        inputs, count = [], 0
        for node in self._graph.find_nodes(op="placeholder"):
            kind = InputKind.BUFFER if node.name in self._weights else InputKind.USER_INPUT
            count += kind is InputKind.USER_INPUT
            target, persistent = (node.name, True) if kind is InputKind.BUFFER else (None, None)
            inputs.append(InputSpec(kind, TensorArgument(node.name), target, persistent))
        (output,) = self._graph.find_nodes(op="output")
        outputs = [OutputSpec(OutputKind.USER_OUTPUT, _argument_of(node), None) for node in output.args[0]]
        structure = pytree.tree_structure(((0,) * count, {})), pytree.tree_structure((0,) * len(outputs))
        self._graph.lint()
        return ExportedProgram(
            self._module,
            self._graph,
            ExportGraphSignature(inputs, outputs),
            dict(self._weights),
            {},
            [ModuleCallEntry("", ModuleCallSignature([], [], *structure))],
            verifiers=[TrainingIRVerifier],
        )

    def known(self) -> list[SizeExpression]:
        """Return conditions on sizes that hold in all calls: PyTorch tests the guards of the trace before."""
        return [guard.expr for guard in self._guards()[: self._guards_before]]

    def conditions(self) -> list[SizeExpression]:
        """Return conditions on sizes that were assumed after the trace, so that no guard tests them."""
        return [guard.expr for guard in self._guards()[self._guards_before :]]

    def _guards(self) -> Sequence[Any]:
        return self._mode.shape_env.guards if self._mode.shape_env is not None else ()

    def _add_weight(self, node: torch.fx.Node, name: str, tensor: torch.Tensor) -> None:
        """Replace a node by a buffer, which is a placeholder before those of the inputs."""
        with self._graph.inserting_before(next(iter(self._graph.nodes))):
            weight = self._graph.placeholder(name)
        weight.meta["val"] = self._fake(node.meta["val"] if node.op == "placeholder" else tensor)
        self._weights[weight.name] = tensor
        node.replace_all_uses_with(weight)
        self._graph.erase_node(node)

    def _add_constants(self) -> None:
        """Replace the tensors that the trace holds as attributes by buffers."""
        import torch

        for node in self._graph.find_nodes(op="get_attr"):
            held = self._module
            for part in node.target.split("."):
                held = getattr(held, part)
            if isinstance(held, torch.Tensor):
                self._add_weight(node, f"constant_{len(self._weights)}", held.detach())

    def _fake(self, value: torch.Tensor) -> torch.Tensor:
        from torch._subclasses.fake_tensor import FakeTensor

        return value if isinstance(value, FakeTensor) else self._mode.from_tensor(value, static_shapes=True)

    def _trace_values(self) -> None:
        """Compute the values of nodes that have none, such as those that a division of a graph has added."""
        for node in self._graph.nodes:
            if node.op == "call_function" and "val" not in node.meta:
                self._trace_value(node)

    def _trace_value(self, node: torch.fx.Node) -> None:
        import torch

        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        with self._mode:
            node.meta["val"] = node.target(*args, **kwargs)

    def _replace_size(self, node: torch.fx.Node, index: int, value: object) -> None:
        """Replace a numeric input by the size of a dim; without such a dim, add an empty tensor."""
        import torch

        if not node.users:
            self._graph.erase_node(node)
            return
        place = next(self._places_of(value), None)
        if place is None:
            if not isinstance(value, torch.SymInt) or hint(value) < LEAST_NUMBER:
                raise FrontendError(
                    f"the graph takes the number '{node.name}': expected an integer from {LEAST_NUMBER} on"
                )
            self.numbers.append(index)
            *_, last = self._graph.find_nodes(op="placeholder")
            with self._graph.inserting_after(last), self._mode:
                place = self._graph.placeholder(f"number_{index}"), 0
                place[0].meta["val"] = torch.empty((value, 0))
        with self._graph.inserting_before(self._first_operation):
            size = self._graph.call_function(torch.ops.aten.sym_size.int, place)
        size.meta["val"] = value
        node.replace_all_uses_with(size)
        self._graph.erase_node(node)

    def _places_of(self, value: object) -> Iterator[tuple[torch.fx.Node, int]]:
        """Return each input and dim with a size."""
        for index in self.positions:
            for axis, dim in enumerate(self._fake_inputs[index].shape):
                if not isinstance(dim, int) and str(dim) == str(value):
                    yield self._nodes[index], axis

    def _take_orders(self) -> dict[int, tuple[int, ...]]:
        """Return the order of dims in memory of inputs that are not contiguous, and permute them in the graph.

        They are not copied for the call, and views that PyTorch takes of them can be exported.
        """
        import torch

        orders = {}
        first = next(node for node in self._graph.nodes if node.op != "placeholder")
        for index in self.positions:
            fake = self._fake_inputs[index]
            order = memory_order(fake) if isinstance(fake, torch.Tensor) and not fake.dtype.is_complex else None
            if order is None:
                continue
            orders[index], node = order, self._nodes[index]
            inverse = [order.index(axis) for axis in range(len(order))]
            with self._graph.inserting_before(first):
                logical = self._graph.call_function(torch.ops.aten.permute.default, (node, inverse))
            logical.meta = dict(node.meta)
            with self._mode:
                node.meta["val"] = fake.permute(order)
            node.replace_all_uses_with(logical, delete_user_cb=lambda user, own=logical: user is not own)
        return orders

    def _take_results(self) -> list[tuple[str, object]]:
        """Return the kind of each result, and keep only the computed ones in the graph."""
        import torch

        (output,) = self._graph.find_nodes(op="output")
        rows: list[tuple[str, object]] = []
        kept = []
        for value in output.args[0]:
            if not isinstance(value, torch.fx.Node):
                rows.append(("constant", value))
                continue
            example = value.meta["val"]
            if not isinstance(example, torch.Tensor):
                rows.append(("size", None))
            else:
                order = memory_order(example)
                strides = None if order is not None else sparse_strides(example)
                form = ("tensor", order) if strides is None else ("view", strides)
                rows.append(("complex", form) if example.dtype.is_complex else form)
                if order is not None:
                    with self._graph.inserting_before(output):
                        value = self._graph.call_function(torch.ops.aten.permute.default, (value, list(order)))
                    self._trace_value(value)
            kept.append(value)
        output.args = (tuple(kept),)
        return rows


def _fake_mode(fake_inputs: Sequence[object], graph: torch.fx.Graph) -> FakeTensorMode:
    """Return the mode of the trace's tensors, with its sizes."""
    from torch._guards import detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    values = [node.meta.get("val") for node in graph.nodes]
    return detect_fake_mode([*fake_inputs, *values]) or FakeTensorMode(shape_env=ShapeEnv())


def _argument_of(node: torch.fx.Node) -> Any:
    """Return a result as the signature of a program has it."""
    import torch
    from torch.export.graph_signature import SymIntArgument, TensorArgument

    return (TensorArgument if isinstance(node.meta["val"], torch.Tensor) else SymIntArgument)(node.name)
