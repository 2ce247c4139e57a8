"""Products and convolutions by oneDNN, one thread: called through the bindings of target `onednn`."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mirlo_onednn.native import api, desc
from mirlo_onednn.native.library import load_library
from mirlo_onednn.native.storage import aligned

from benchmarks.kernels.contraction import Case


def version() -> str:
    """Return the version of the library."""
    return ".".join(map(str, load_library().version))


def onednn_runner(
    case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray
) -> tuple[Callable[[int], float], Callable[[], np.ndarray]]:
    """Return a function of a number of runs to the least of their seconds, and another that returns the result.

    Bias and ReLU are fused. All layouts are the library's choice and weights are reordered before: the time is that of
    the primitive in its preferred layouts.
    """
    load_library().handle.omp_set_num_threads(1)
    return _Primitive(case, x, w, b).runner()


class _Primitive:
    def __init__(self, case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> None:
        self.case = case
        self.keep: list[Any] = []
        out = ctypes.c_void_p()
        api.call("stream_create", ctypes.byref(out), api.engine(), 1)
        self.stream = out.value
        if case.is_conv and case.groups > 1:
            w = w.reshape(case.groups, case.weight[0] // case.groups, *case.weight[1:])
        bias_shape = b.shape if case.is_conv else (*(1,) * (len(case.out) - 1), b.shape[0])
        primitive = self._describe(x.shape, w.shape, bias_shape)
        self.out_desc = desc.of_primitive(primitive.pointer, api.QUERY_DST, 0, case.out, "f32")
        self.out = aligned(self.out_desc.bytes)
        parts = [
            (api.SRC, *self._moved(x, desc.of_primitive(primitive.pointer, api.QUERY_SRC, 0, x.shape, "f32"))),
            (api.WEIGHTS, *self._moved(w, desc.of_primitive(primitive.pointer, api.QUERY_WEIGHTS, 0, w.shape, "f32"))),
            (api.BIAS, *self._moved(b.reshape(bias_shape), desc.row_major(bias_shape, "f32"))),
            (api.DST, self.out_desc, self.out),
        ]
        memories = [(role, self._memory(layout, data)) for role, layout, data in parts]
        self.arguments = (api.ExecArg * len(memories))(*[api.ExecArg(role, m.pointer) for role, m in memories])
        self.primitive = api.create_object("primitive_create", "primitive_destroy", primitive.pointer)
        self.keep += [parts, memories, primitive]

    def _describe(self, x: Any, w: Any, b: Any) -> Any:
        case = self.case
        attributes = api.create_object("primitive_attr_create", "primitive_attr_destroy")
        posts = api.create_object("post_ops_create", "post_ops_destroy")
        api.call("post_ops_append_eltwise", posts.pointer, api.ELTWISE["relu"], 0.0, 0.0)
        api.call("primitive_attr_set_post_ops", attributes.pointer, posts.pointer)
        self.keep += [attributes, posts]
        if not case.is_conv:
            # Layers keep their rows as they are; the weights may lie in any way.
            descriptors = [
                desc.row_major(x, "f32"),
                desc.any_layout(w, "f32"),
                desc.row_major(b, "f32"),
                desc.row_major(case.out, "f32"),
            ]
            return api.create_object(
                "matmul_primitive_desc_create",
                "primitive_desc_destroy",
                api.engine(),
                *(one.pointer for one in descriptors),
                attributes.pointer,
            )
        descriptors = [
            desc.any_layout(x, "f32"),
            desc.any_layout(w, "f32"),
            desc.row_major(b, "f32"),
            desc.any_layout(case.out, "f32"),
        ]
        geometry = [api.dims([number] * 2) for number in (case.stride, 0, case.pad, case.pad)]
        return api.create_object(
            "convolution_forward_primitive_desc_create",
            "primitive_desc_destroy",
            api.engine(),
            api.FORWARD_INFERENCE,
            api.CONVOLUTION_DIRECT,
            *(one.pointer for one in descriptors),
            *geometry,
            attributes.pointer,
        )

    def _memory(self, layout: desc.Desc, data: np.ndarray) -> Any:
        return api.create_object("memory_create", "memory_destroy", layout.pointer, api.engine(), data.ctypes.data)

    def _moved(self, array: np.ndarray, layout: desc.Desc) -> tuple[desc.Desc, np.ndarray]:
        """Return the array in a layout."""
        source, target = np.ascontiguousarray(array, np.float32), aligned(layout.bytes)
        target[:] = 0
        self._reorder(desc.row_major(array.shape, "f32"), source, layout, target)
        return layout, target

    def _reorder(self, from_: desc.Desc, source: np.ndarray, to: desc.Desc, target: np.ndarray) -> None:
        engine = api.engine()
        described = api.create_object(
            "reorder_primitive_desc_create", "primitive_desc_destroy", from_.pointer, engine, to.pointer, engine, None
        )
        primitive = api.create_object("primitive_create", "primitive_destroy", described.pointer)
        memories = self._memory(from_, source), self._memory(to, target)
        arguments = (api.ExecArg * 2)(
            api.ExecArg(api.SRC, memories[0].pointer), api.ExecArg(api.DST, memories[1].pointer)
        )
        api.call("primitive_execute", primitive.pointer, self.stream, 2, arguments)
        api.call("stream_wait", self.stream)

    def runner(self) -> tuple[Callable[[int], float], Callable[[], np.ndarray]]:
        execute, wait = api.functions()["primitive_execute"], api.functions()["stream_wait"]
        primitive, stream, count, arguments = self.primitive.pointer, self.stream, len(self.arguments), self.arguments

        def run(times: int) -> float:
            least = nothing = math.inf
            for _ in range(times):
                start = time.perf_counter()
                execute(primitive, stream, count, arguments)
                wait(stream)
                middle = time.perf_counter()
                wait(stream)
                wait(stream)
                end = time.perf_counter()
                least, nothing = min(least, middle - start), min(nothing, end - middle)
            # The calls through ctypes are not the library's: calls that do nothing take as long.
            return max(least - nothing, 1e-8)

        def result() -> np.ndarray:
            output = np.empty(self.case.out, np.float32)
            self._reorder(self.out_desc, self.out, desc.row_major(self.case.out, "f32"), output)
            return output

        run(1)
        return run, result
