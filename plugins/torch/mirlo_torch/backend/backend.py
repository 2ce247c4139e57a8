"""The backend: inference is compiled with the weights as constants, training with the weights as inputs.

`aot_autograd` turns a captured graph into one that writes nothing, and puts the writes of arguments around it. If
gradients are needed, it returns a forward and a backward graph, and chooses the values that are saved in between.
Weights of inference become constants, since only constants are packed when compiling; a call compares their versions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from mirlo.extend.runtime import ArenaPool, has_thread_pool, join_openmp, keep_freed_memory
from mirlo_torch.backend.options import BackendOptions
from mirlo_torch.backend.rematerialize import partition_joint
from mirlo_torch.backend.stages import StagedGraph, compile_stages
from mirlo_torch.decompose import decompositions_of_training
from mirlo_torch.frozen import FrozenWeights

if TYPE_CHECKING:
    import torch

GraphFunction = Callable[..., object]
"""A graph that is called with its inputs, as PyTorch passes them."""
FakeInputs: TypeAlias = Sequence["torch.Tensor | torch.SymInt"]
"""An input of a graph during tracing."""


def mirlo_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[torch.Tensor | torch.SymInt],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> GraphFunction:
    """Compile a graph that TorchDynamo captured."""
    from torch._dynamo.backends.common import aot_autograd

    settings = BackendOptions.parse(options, mode)
    if settings.compile_arguments()["threads"] > 1:
        _share_threads()
    has_gradients = _has_gradients(example_inputs)
    if has_gradients:  # a step allocates what the step before has freed
        keep_freed_memory()
    # One pool for all graphs. Those of a step of training are called one after the other, and share one arena.
    arenas = ArenaPool(0, keep=1) if has_gradients else ArenaPool(0)

    def compile_inference(functional: torch.fx.GraphModule, fake_inputs: FakeInputs) -> GraphFunction:
        frozen = _frozen_inputs(functional, example_inputs)
        return _boxed(_LazyGraph(functional, fake_inputs, frozen, settings, arenas))

    def compile_forward(functional: torch.fx.GraphModule, fake_inputs: FakeInputs) -> GraphFunction:
        return _boxed(_LazyGraph(functional, fake_inputs, {}, settings.of_training(), arenas))

    def compile_backward(functional: torch.fx.GraphModule, fake_inputs: FakeInputs) -> GraphFunction:
        return _boxed(_LazyGraph(functional, fake_inputs, {}, settings, arenas, is_backward=True))

    compiled: GraphFunction = aot_autograd(
        fw_compiler=compile_forward,
        bw_compiler=compile_backward,
        inference_compiler=compile_inference,
        partition_fn=partition_joint,
        decompositions=decompositions_of_training() if has_gradients else {},
    )(graph, example_inputs)
    return compiled


def _share_threads() -> None:
    """Run compiled code on the threads of PyTorch's own kernels, if these are threads of OpenMP."""
    import torch

    if has_thread_pool() and torch.backends.openmp.is_available():
        join_openmp(ctypes.CDLL(torch._C.__file__))


def _has_gradients(inputs: Sequence[torch.Tensor | torch.SymInt]) -> bool:
    """Return whether a call of a graph computes gradients."""
    import torch

    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)


MOST_CHANGES = 1
"""Number of weight changes after which the weights become inputs instead of constants."""


class _LazyGraph:
    """A graph that is compiled when it is first called, and again when its weights have changed.

    While TorchDynamo captures, it would take the guards of the export for those of the caller's code.
    """

    def __init__(
        self,
        functional: torch.fx.GraphModule,
        fake_inputs: FakeInputs,
        frozen: dict[int, torch.Tensor],
        settings: BackendOptions,
        arenas: ArenaPool,
        is_backward: bool = False,
    ) -> None:
        self._functional, self._fake_inputs = functional, fake_inputs
        self._settings, self._arenas, self._is_backward = settings, arenas, is_backward
        self._frozen = frozen
        self._weights: FrozenWeights | None = None
        self._run: StagedGraph | None = None
        self._changes = 0

    def __call__(self, inputs: list[torch.Tensor | torch.SymInt]) -> object:
        """Run the graph on a list of inputs, which is emptied."""
        if self._run is None or not (self._settings.frozen or self._is_current(inputs)):
            self._changes += self._run is not None
            is_constant = self._changes <= MOST_CHANGES
            self._frozen = {index: inputs[index] for index in self._frozen} if is_constant else {}
            self._weights = FrozenWeights.of({str(index): tensor for index, tensor in self._frozen.items()})
            self._run = compile_stages(
                self._functional, self._fake_inputs, self._frozen, self._settings, self._arenas, self._is_backward
            )
            if not self._frozen:  # it is not compiled again
                del self._functional, self._fake_inputs
        return self._run(inputs)

    def _is_current(self, inputs: Sequence[torch.Tensor | torch.SymInt]) -> bool:
        """Return whether the weights are those that the graph was compiled with."""
        assert self._weights is not None
        if any(inputs[index] is not tensor for index, tensor in self._frozen.items()):
            return False
        return self._weights.changed() is None


def _frozen_inputs(
    functional: torch.fx.GraphModule, real_inputs: Sequence[torch.Tensor | torch.SymInt]
) -> dict[int, torch.Tensor]:
    """Return the inputs that are weights of modules and are not written, by their position."""
    import torch
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    placeholders = [node for node in functional.graph.nodes if node.op == "placeholder"]
    if metadata is None or len(placeholders) != len(real_inputs):
        return {}
    written = {index for index, info in enumerate(metadata.input_info) if info.mutates_data or info.mutates_metadata}
    inputs = {}
    for index in metadata.static_input_indices:
        value = real_inputs[index]
        if index not in written and isinstance(value, torch.Tensor) and not _is_fake(value):
            inputs[index] = value
    return inputs


def _is_fake(tensor: object) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def _boxed(graph: _LazyGraph) -> GraphFunction:
    """Return a function of a list of inputs; the caller keeps no input, so that each is freed while the graph runs."""

    def run(inputs: list[torch.Tensor | torch.SymInt]) -> object:
        return graph(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
