"""The pass `outline-kernels`: outline launches as kernels; loops without a launch get one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.buffers import WORKSPACE
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.view import is_prim_func, is_tensor_form
from mirlo.passes.lower.calls import find_all
from mirlo.passes.registry import Pass, PassError, register_pass
from mirlo.passes.upstream import run_unverified
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.launches import find_launches
from mirlo.targets.gpu.schedule.launch import WARP, Ids, launch, launch_iterations
from mirlo.targets.gpu.threads import parallel_nest

if TYPE_CHECKING:
    from mirlo.passes.session import Session

ON_DEVICE = "tir.on_device"
"""Unit attribute of a declared function that kernels are linked with."""
OUTLINE = "builtin.module(canonicalize,cse,gpu-launch-sink-index-computations,gpu-kernel-outlining)"


def _instead_of(callee: str) -> str:
    """Return a replacement for a C function, or one of CUDA's libdevice, that a kernel cannot call."""
    file = "libdevice" if callee.startswith("__nv_") else "FILE"
    named = f"; target nvvm takes the functions of files of bitcode or PTX, nvvm{{library={file}}}"
    short = callee.removeprefix("__nv_").removeprefix("fast_")
    for name in (short, short.removesuffix("f")):
        replacement = {"fabs": "abs", "rint": "roundeven", "nearbyint": "roundeven"}.get(name, name)
        if replacement in INTRINSICS:
            return f"write the intrinsic T.{replacement}, which kernels compute in code of their own{named}"
    return (
        "use an intrinsic (T.erf, docs/intrinsics.md), or declare one with mirlo.extend.ops.define_intrinsic and lower "
        f"it for this target with @intrinsic{named}"
    )


@register_pass
@dataclass(frozen=True)
class OutlineKernels(Pass):
    """Outline the launches of prim functions as kernels, each in a `gpu.module`.

    Each loop of a prim function in buffer form without a launch, such as hand-written ones, becomes a kernel: a thread
    per iteration of parallel loops, or one thread. Loops that share private memory are one kernel.
    """

    name = "outline-kernels"
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        operations = list(op.regions[0].blocks[0].operations)
        known = {symbol_name(f) for f in operations if ON_DEVICE in f.attributes}
        for function in operations:
            if is_prim_func(function) and not is_tensor_form(function) and len(function.operation.regions[0].blocks):
                used = find_all(function, "func.call", "gpu.launch")
                self._check(used["func.call"], known)
                if not used["gpu.launch"]:
                    _wrap(function.operation)
        run_unverified(OUTLINE, op.operation)

    @staticmethod
    def _check(calls: Sequence[ir.Operation], known: set[str]) -> None:
        for call in calls:
            callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            if callee in known:
                continue
            text = f"a kernel calls the C function '{callee}', which GPUs do not have: {_instead_of(callee)}"
            raise PassError(text, call.location)


def _wrap(function: ir.Operation) -> None:
    """Launch the work of a body; views and arithmetic on sizes stay outside, and the device copies whole buffers."""
    returns = list(function.regions[0].blocks[0].operations)[-1].operation
    for work in find_launches(function):
        for op in work.operations:
            op.move_before(returns)
        if work.is_on_host:
            continue
        # Scratch memory that is a parameter is shared by all iterations.
        nest = None if WORKSPACE in function.attributes else parallel_nest(work.operations)
        with ir.InsertionPoint(returns), function.location:
            if nest is not None:
                nest.hoist_extents()
                launch_iterations(nest.extents, partial(_each, work.operations, nest.loops))
            else:
                # Use a whole warp of which one thread works: software devices miscompile loops in smaller blocks.
                launch(1, WARP, partial(_single_thread_kernel, work.operations))


def _each(inside: Sequence[ir.Operation], loops: Sequence[ir.Operation], indices: Sequence[ir.Value]) -> None:
    """Emit one iteration with private scratch memory."""
    end = _mark()
    for op in inside:
        if op is not loops[0]:
            op.move_before(end)
    body = loops[-1].regions[0].blocks[0]
    for loop, value in zip(loops, indices, strict=True):
        loop.regions[0].blocks[0].arguments[0].replace_all_uses_with(value)
    for op in [o.operation for o in body.operations][:-1]:
        op.move_before(end)
    end.erase()
    loops[0].erase()


def _single_thread_kernel(inside: Sequence[ir.Operation], ids: Ids) -> None:
    """Run everything in the first thread; its scratch memory is allocated before."""
    end = _mark()
    branch = scf.IfOp(ids.thread.below(1))
    with ir.InsertionPoint(branch.then_block):
        last = scf.YieldOp([]).operation
    for op in inside:
        op.move_before(end if op.name == "memref.alloca" else last)
    end.erase()


def _mark() -> ir.OpView:
    """Return an anchor operation to move operations before; it is erased at the end."""
    anchor: ir.OpView = index(0).owner
    return anchor
