"""Compile one prim function by the schedules of target `llvm`, and call it on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from presets import CodeOf
from verified_kernels import require_equal

from mirlo.dialects.bindings import execution_engine, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import PrimBuilder, TensorExpr
from mirlo.passes.lower.intrinsics import Lowering
from mirlo.passes.lower.loops import LowerLoops
from mirlo.passes.schedule.schedule import SchedulePrims
from mirlo.passes.session import Session
from mirlo.targets.llvm.pipeline import lower_to_llvm
from mirlo.targets.llvm.processor import host_processor

Body = Callable[..., Any]


def contiguous(shape: Sequence[int], element: Any) -> np.ndarray:
    """Return an array aligned to a cache line, as the run time's are."""
    count, kind = int(np.prod(shape)), np.dtype(element)
    held = np.zeros(count * kind.itemsize + 64, np.uint8)
    start = -held.ctypes.data % 64
    return held[start : start + count * kind.itemsize].view(kind).reshape(shape)


class Kernel:
    """A prim function that `body(p, *tensors)` builds, as machine code. `inputs` are (shape, dtype) pairs.

    Only a kernel for a named machine shows its code: `schedule`, `text` and `declines`.
    """

    schedule = CodeOf[str]()
    """The attribute `tir.schedule`."""
    text = CodeOf[str]()
    """The buffer form."""
    declines = CodeOf[list[str]]()

    def __init__(
        self, body: Body, inputs: Sequence[tuple[Sequence[int], str]], machine: Any = None, opt_level: int = 2
    ):
        self.machine = machine
        self._opt_level = opt_level
        self._context = make_context()
        with self._context, ir.Location.unknown():
            self._module = module = ir.Module.create()
            prim = PrimBuilder("kernel", [TensorType.of(tuple(s), d) for s, d in inputs], ir.Location.unknown())
            made = body(prim, *prim.inputs)
            outputs: tuple[TensorExpr, ...] = made if isinstance(made, tuple) else (made,)
            module.body.append(prim.finish(*outputs).operation)
            self._definition = module.body.operations[0].operation.clone()
            self.outputs = [(t.shape, dtype(t.dtype).to_numpy()) for t in outputs]
            self.session = Session(options={} if machine is None else {"machine": machine})
            SchedulePrims().run(module.operation, self.session)
            module.operation.verify()
            function = module.body.operations[0]
            self.schedule = str(function.attributes["tir.schedule"])
            self.rule = self.session.notes[0].rule.name
            self.declines = [str(attempt) for attempt in self.session.notes[0].attempts]
            work = function.attributes["tir.workspace"].value if "tir.workspace" in function.attributes else 0
            self.text = str(module)
            self._workspace = contiguous((work,), np.uint8)
            function.operation.attributes["sym_visibility"] = ir.StringAttr.get("public")

    @cached_property
    def engine(self) -> Any:
        """Return the machine code, for this processor."""
        module = self._module
        with self._context, ir.Location.unknown():
            LowerLoops().run(module.operation, self.session)
            require_equal(self._definition, module.body.operations[0].operation)
            Lowering(("llvm", "default"), options=self.session.options).run(module.operation)
            lower_to_llvm(module, host_processor())
            module.body.operations[0].operation.attributes["no_inline"] = ir.UnitAttr.get()
            return execution_engine.ExecutionEngine(module, opt_level=self._opt_level)

    @cached_property
    def _function(self) -> Any:
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.engine.raw_lookup("kernel"))

    def bind(self, *arrays: np.ndarray) -> tuple[Callable[[], None], list[np.ndarray]]:
        """Return a call without arguments on these arrays, and the arrays it writes."""
        outputs = [contiguous(shape, element) for shape, element in self.outputs]
        held = [*arrays, *outputs, *([self._workspace] if self._workspace.size else [])]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in held]
        packed = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
        address = ctypes.addressof(packed)
        function = self._function

        def call(keep: Any = (held, pointers, packed)) -> None:
            function(address)

        return call, outputs

    def __call__(self, *arrays: np.ndarray) -> Any:
        held = []
        for array in arrays:
            copy = contiguous(array.shape, array.dtype)
            copy[...] = array
            held.append(copy)
        call, outputs = self.bind(*held)
        for output in outputs:
            output.reshape(-1).view(np.uint8).fill(0xA5)
        call()
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
