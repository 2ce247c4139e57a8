"""The stages of one kernel: its IR after each pass that changed it, then its code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import is_prim_func
from mirlo.driver.code import UnknownKernel
from mirlo.driver.save_code import texts_by_form
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.kernel_nodes import kernel_calls, node_labels
from mirlo.passes.pipeline_parser import Step
from mirlo.passes.targets import CompileOptions, Target
from mirlo.runtime.nearest import nearest

MAX_ELEMENTS = 16
"""Elements of a constant that are printed: more hide the code."""


class NamedKernel(Protocol):
    """A kernel with the nodes that it computes."""

    name: str
    nodes: list[str]


@dataclass(frozen=True)
class KernelStage:
    """What a kernel was at one point."""

    title: str
    text: str


@dataclass
class FollowedKernel(Instrument):
    """Keeps the operators of a model, and a prim function after each pass that changed it."""

    kernel: str
    operators: list[tuple[list[str], str]] = field(default_factory=list)
    legalized: list[tuple[list[str], str]] = field(default_factory=list)
    """The prim functions before they are fused, with the nodes of their calls."""
    stages: list[KernelStage] = field(default_factory=list)

    def begin_stage(self, op: ir.Operation | ir.OpView, remaining: Sequence[Step]) -> None:
        if not self.operators:
            self.operators = _operators(op.operation)

    def after_pass(self, step: Step, op: ir.OpView) -> None:
        module = op.operation
        while module.parent is not None:
            module = module.parent.operation
        if step.name == "legalize":
            self.legalized += _called(module)
            return
        texts = [_text(found) for found in _of_kernel(module, self.kernel)]
        text = "\n".join(texts)
        if text and (not self.stages or self.stages[-1].text != text):
            self.stages.append(KernelStage(f"after {step}", text))

    def all_stages(
        self, kernels: Sequence[NamedKernel], module: ir.Module, target: Target, options: CompileOptions
    ) -> list[KernelStage]:
        """Return all stages, from operators to the code in each form that is text."""
        names = {kernel.name: kernel.nodes for kernel in kernels}
        if self.kernel not in names:
            listed = ", ".join(names) or "none"
            raise UnknownKernel(
                f"the model has no kernel '{self.kernel}'{nearest(self.kernel, names)}; its kernels: {listed}"
            )
        wanted = set(names[self.kernel])

        def of_nodes(found: Sequence[tuple[list[str], str]]) -> str:
            return "\n".join(dict.fromkeys(text for labels, text in found if wanted.intersection(labels)))

        first = [
            KernelStage("relax", of_nodes(self.operators)),
            KernelStage("after legalize", of_nodes(self.legalized)),
        ]
        return [*(stage for stage in first if stage.text), *self.stages, *self._code(module, target, options)]

    def _code(self, module: ir.Module, target: Target, options: CompileOptions) -> list[KernelStage]:
        result = []
        for form, texts in texts_by_form(module, target, replace(options, kernel=self.kernel)):
            code = [text.code.decode() for text in texts if self.kernel in (text.function, text.symbol)]
            result.append(KernelStage(form.help or form.name, "\n".join(code)))
        return result


def _operators(module: ir.Operation) -> list[tuple[list[str], str]]:
    operators: list[tuple[list[str], str]] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name not in ("builtin.module", "func.func", "func.return", "relax.constant"):
            operators.append((node_labels(op.location), _text(op)))
        return ir.WalkResult.ADVANCE

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return operators


def _called(module: ir.Operation) -> list[tuple[list[str], str]]:
    """Return the nodes and the text of each prim function that is called."""
    nodes: dict[str, list[str]] = {}
    for name, labels in kernel_calls(module):
        nodes.setdefault(name, []).extend(labels)
    functions = (op.operation for op in module.regions[0].blocks[0].operations if op.operation.name == "func.func")
    return [(nodes[symbol_name(op)], _text(op)) for op in functions if symbol_name(op) in nodes and is_prim_func(op)]


def _of_kernel(module: ir.Operation, name: str) -> list[ir.Operation]:
    """Return a prim function, and the modules with the kernels that it launches."""
    operations = []
    launched: set[str] = set()
    for op in module.regions[0].blocks[0].operations:
        if op.operation.name == "func.func" and is_prim_func(op) and symbol_name(op.operation) == name:
            operations.append(op.operation)
            launched |= _launched(op.operation)
    modules = [op.operation for op in module.regions[0].blocks[0].operations if op.operation.name == "gpu.module"]
    return operations + [op for op in modules if symbol_name(op) in launched]


def _launched(function: ir.Operation) -> set[str]:
    names: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "gpu.launch_func":
            names.add(ir.SymbolRefAttr(op.attributes["kernel"]).value[0])
        return ir.WalkResult.ADVANCE

    function.walk(visit)
    return names


def _text(op: ir.Operation) -> str:
    text: str = op.get_asm(use_local_scope=True, large_elements_limit=MAX_ELEMENTS, assume_verified=True)
    return text
