"""Compile one prim function by the schedule rules, or by scalar loops alone, and run it over numpy arrays."""

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
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import PrimBuilder, TensorExpr
from mirlo.passes.lower.intrinsics import Lowering
from mirlo.passes.lower.loops import LowerLoops
from mirlo.passes.schedule.buffers import WORKSPACE
from mirlo.passes.schedule.schedule import SchedulePrims
from mirlo.passes.session import Session
from mirlo.targets.llvm.pipeline import lower_to_llvm
from mirlo.targets.llvm.processor import host_processor
from mirlo.testing.unoptimized import engine_level

Build = Callable[..., Any]
"""Takes the compute builder and a tensor per input; returns the output tensor, or a tuple of them."""


def tensor(*shape: int, dtype: str = "f32") -> TensorType:
    return TensorType.of(shape, dtype)


class Kernel:
    """A prim function as code. `rule` names what scheduled it.

    Only a kernel for a named machine shows its code: `text`, which is its buffer form, and `declined`.
    """

    text = CodeOf[str]()
    declined = CodeOf[dict[str, str]]()
    """Why rules declined, by their names."""

    def __init__(
        self, build: Build, inputs: Sequence[TensorType], target: str = "llvm", options: dict[str, Any] | None = None
    ):
        self.inputs = list(inputs)
        self.machine = "any" if target == "default" else (options or {}).get("machine")
        self._context = make_context()
        self._session = session = Session(options=options or {})
        with self._context, ir.Location.unknown() as location:
            self._module = module = ir.Module.create()
            prim = PrimBuilder("kernel", inputs, location)
            made = build(prim, *prim.inputs)
            outputs: tuple[TensorExpr, ...] = made if isinstance(made, tuple) else (made,)
            self.outputs = [output.type for output in outputs]
            module.body.append(prim.finish(*outputs).operation)
            self.tensor_form = str(module)
            self._definition = module.body.operations[0].operation.clone()
            SchedulePrims(target=target).run(module.operation, session)
            self.text = str(module)
            assert module.operation.verify()
            record = session.notes[-1]
            self.rule, self.trace = record.rule.name, record.trace
            self.declined = {attempt.rule.name: str(attempt.decline) for attempt in record.attempts}
            function = module.body.operations[0]
            attributes = function.operation.attributes
            workspace = attributes[WORKSPACE].value if WORKSPACE in attributes else 0
            self._workspace = np.zeros(workspace + 64, np.uint8)
            del function.operation.attributes["sym_visibility"]
        self._has_workspace = bool(workspace)

    @cached_property
    def _engine(self) -> Any:
        """Return the machine code, for this processor."""
        module = self._module
        with self._context, ir.Location.unknown():
            LowerLoops().run(module.operation, self._session)
            require_equal(self._definition, module.body.operations[0].operation)
            module.body.operations[0].operation.attributes["no_inline"] = ir.UnitAttr.get()
            Lowering(("llvm", "default"), options=self._session.options).run(module.operation)
            lower_to_llvm(module, host_processor())
            return execution_engine.ExecutionEngine(module, opt_level=engine_level())

    @cached_property
    def _function(self) -> Any:
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._engine.raw_lookup("kernel"))

    def pack(self, arrays: Sequence[np.ndarray]) -> tuple[Callable[[], None], list[np.ndarray]]:
        """Return a call on these inputs without overhead, and the arrays that it writes."""
        results = [_aligned(t) for t in self.outputs]
        scratch = [self._workspace[(-self._workspace.ctypes.data) % 64 :]] if self._has_workspace else []
        every = [*arrays, *results, *scratch]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in every]
        packed = (ctypes.c_void_p * max(len(pointers), 1))(*(ctypes.addressof(p) for p in pointers))
        address, function = ctypes.addressof(packed), self._function
        keep = (every, pointers, packed)

        def call(keep: Any = keep) -> None:
            function(address)

        return call, results

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        for array, wanted in zip(arrays, self.inputs, strict=True):
            assert array.shape == wanted.static_shape and array.flags.c_contiguous, (array.shape, wanted)
            assert array.dtype == wanted.dtype.to_numpy(), (array.dtype, wanted)
        call, results = self.pack(arrays)
        call()
        return results


def _aligned(kind: TensorType) -> np.ndarray:
    """Return an array of this type aligned to a cache line, filled with values that no kernel should leave."""
    dtype, count = kind.dtype.to_numpy(), int(np.prod(kind.static_shape, dtype=np.int64))
    memory = np.full(count * dtype.itemsize + 64, 0xA5, np.uint8)
    start = (-memory.ctypes.data) % 64
    return memory[start : start + count * dtype.itemsize].view(dtype).reshape(kind.static_shape)


def random_array(kind: TensorType, generator: np.random.Generator) -> np.ndarray:
    """Values that an operation on this type can digest."""
    shape, dtype = kind.static_shape, kind.dtype
    if dtype.is_float:
        return generator.standard_normal(shape).astype(dtype.to_numpy())
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    return generator.integers(1, 100, shape).astype(dtype.to_numpy())


def compare(
    build: Build,
    inputs: Sequence[TensorType],
    rule: str | None = None,
    seed: int = 0,
    tolerance: float = 1e-5,
    **options: Any,
) -> Kernel:
    """Check that the scheduled code computes what scalar loops compute; `rule` is what must have scheduled it."""
    fast = Kernel(build, inputs, options=options)
    plain = Kernel(build, inputs, target="default")
    assert plain.rule == "scalar_nest"
    if rule is not None:
        assert fast.rule == rule
    generator = np.random.default_rng(seed)
    arrays = [random_array(kind, generator) for kind in inputs]
    for found, wanted in zip(fast(*arrays), plain(*arrays), strict=True):
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(found, wanted)
    return fast
