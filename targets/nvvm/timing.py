"""Time of repeated calls of a model on a GPU, without host overhead, by the device's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.targets.nvvm.device import check
from mirlo.targets.nvvm.graphs import Graphs
from mirlo.targets.nvvm.rows import ProfileEvents

if TYPE_CHECKING:
    from mirlo.targets.nvvm.model import CudaModel


def microseconds(model: CudaModel, repeats: int) -> float | None:
    """Return the microseconds of a call with the last call's tensors.

    Return None if the host makes decisions, or without a last call. `repeats` calls are one graph, so nothing waits
    for the host. Tensors are not copied from or to the CPU.
    """
    with model.lock, model.gpu.entered():
        own = model.copied_tensors()
        if own is None:
            return None

        def work() -> None:
            for _ in range(repeats):
                model.start_steps(own)

        graphs = Graphs(model.gpu)
        try:
            graphs.launch("warm", model.stream, work, at_once=True)
            rows = ProfileEvents(model.gpu, model.stream)
            rows.reach(0)
            graphs.launch("warm", model.stream, work)
            rows.reach(1)
            check(model.gpu.cuda.cuStreamSynchronize(model.stream), "running the model")
            return 1e3 * rows.times()[1] / repeats
        finally:
            graphs.clear()
