"""The stages of kernels: their IR after each pass that changed it, then their code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field, replace
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import is_prim_func
from mirlo.driver.code import UnknownKernel
from mirlo.driver.save_code import texts_by_form
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.locations import kernel_calls, node_labels
from mirlo.passes.pipeline_parser import Step
from mirlo.passes.targets import CompileOptions, Target
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass
from mirlo.tools.explain.locations import split_locations
from mirlo.tools.explain.operations import FollowedOperation, calls_kernels, operations_of

MAX_ELEMENTS = 16
"""Elements of a constant that are printed: more hide the code."""


class NamedKernel(Protocol):
    """A kernel with the nodes that it computes."""

    name: str
    nodes: list[str]


@dataclass(frozen=True)
class KernelStage:
    """The IR or code of a kernel at one stage."""

    title: str
    text: str
    nodes: tuple[tuple[str, ...], ...] = ()
    """The nodes of each line, of IR with locations."""


def require_kernel(name: str, names: Collection[str]) -> None:
    """Raise `UnknownKernel` for a name that no kernel of the model has."""
    if name not in names:
        listed = ", ".join(names) or "none"
        raise UnknownKernel(f"the model has no kernel '{name}'{nearest(name, names)}; its kernels: {listed}")


@dataclass
class FollowedKernels(Instrument):
    """Keeps the operators of a model, and prim functions after each pass that changed them."""

    kernel: str | None
    """The name of the only kernel that is followed. If all are, each line is kept with its nodes."""
    operators: list[tuple[list[str], str]] = field(default_factory=list)
    legalized: list[tuple[list[str], str]] = field(default_factory=list)
    """The prim functions before they are fused, with the nodes of their calls."""
    stages: dict[str, list[KernelStage]] = field(default_factory=dict)
    graph: list[KernelStage] = field(default_factory=list)
    """The graph before the first pass, and after each one that changed it; only if all kernels are followed."""
    imported: list[FollowedOperation] = field(default_factory=list)
    called: list[FollowedOperation] = field(default_factory=list)
    """The operations of the graph before the first pass, and the last ones that call kernels with values."""
    _printed: dict[int, str] = field(default_factory=dict)
    """What was printed last of each list of stages, with locations: most passes leave most kernels as they are."""

    def begin_stage(self, op: ir.Operation | ir.OpView, remaining: Sequence[Step]) -> None:
        if not self.operators:
            self.operators = _operators(op.operation)
            if self.kernel is None:
                self.imported = operations_of(op.operation)
            self._keep_graph("import", op.operation)

    def after_pass(self, step: Step, op: ir.OpView) -> None:
        module = op.operation
        while module.parent is not None:
            module = module.parent.operation
        if step.name == "legalize":
            self.legalized += _called(module)
        self._keep_graph(f"after {step}", module)
        if step.name == "legalize":
            return
        for name, operations in _kernels(module, self.kernel).items():
            self._keep(self.stages.setdefault(name, []), f"after {step}", operations)

    def _keep_graph(self, title: str, module: ir.Operation) -> None:
        if self.kernel is None:
            operations = [op.operation for op in module.regions[0].blocks[0].operations]
            graphs = [op for op in operations if op.name == "func.func" and not is_prim_func(op)]
            if self._keep(self.graph, title, [op for op in graphs if op.regions[0].blocks]):
                followed = operations_of(module)
                self.called = followed if calls_kernels(followed) else self.called

    def _keep(self, stages: list[KernelStage], title: str, operations: Sequence[ir.Operation]) -> bool:
        """Keep the text of operations if it differs from what was kept last; return whether it does."""
        if self.kernel is None:
            printed = "\n".join(_text(op, locations=True) for op in operations)
            if self._printed.get(id(stages)) == printed:
                return False
            self._printed[id(stages)] = printed
            text, nodes = split_locations(printed)
        else:
            text, nodes = "\n".join(map(_text, operations)), ()
        if not text or (stages and stages[-1].text == text):
            return False
        stages.append(KernelStage(title, text, nodes))
        return True

    def all_stages(
        self, kernels: Sequence[NamedKernel], modules: Sequence[ir.Module], target: Target, options: CompileOptions
    ) -> dict[str, list[KernelStage]]:
        """Return all stages of the kernels, from operators to the code in each form that is text."""
        code: dict[str, list[KernelStage]] = {}
        for module in modules:
            code |= self._code(module, target, options)
        return self._stages(kernels, code)

    def stages_before_failure(self, kernels: Sequence[NamedKernel]) -> dict[str, list[KernelStage]]:
        """Return the stages of the followed kernel until the failure, without code."""
        return self._stages(kernels, {}) if any(kernel.name == self.kernel for kernel in kernels) else {}

    def _stages(
        self, kernels: Sequence[NamedKernel], code: dict[str, list[KernelStage]]
    ) -> dict[str, list[KernelStage]]:
        names = {kernel.name: kernel.nodes for kernel in kernels}
        if self.kernel is not None:
            require_kernel(self.kernel, names)
        followed = names if self.kernel is None else {self.kernel: names[self.kernel]}
        return {
            name: [*self._before(nodes), *self.stages.get(name, ()), *code.get(name, ())]
            for name, nodes in followed.items()
        }

    def _before(self, nodes: Sequence[str]) -> list[KernelStage]:
        """Return the operators of nodes, and their prim functions before fusion."""
        wanted = set(nodes)

        def of_nodes(labelled: Sequence[tuple[list[str], str]]) -> str:
            return "\n".join(dict.fromkeys(text for labels, text in labelled if wanted.intersection(labels)))

        first = [
            KernelStage("relax", of_nodes(self.operators)),
            KernelStage("after legalize", of_nodes(self.legalized)),
        ]
        return [stage for stage in first if stage.text]

    def _code(self, module: ir.Module, target: Target, options: CompileOptions) -> dict[str, list[KernelStage]]:
        """Return the code of each kernel by its name in reports, or of the only one by either of its names."""
        result: dict[str, list[KernelStage]] = {}
        for form, texts in texts_by_form(module, target, replace(options, kernel=self.kernel or "")):
            code: dict[str, list[str]] = {}
            for text in texts:
                if self.kernel is None or self.kernel in (text.function, text.symbol):
                    code.setdefault(self.kernel or text.function, []).append(text.code.decode())
            for name, listings in code.items():
                result.setdefault(name, []).append(KernelStage(form.help or form.name, "\n".join(listings)))
        return result


def _operators(module: ir.Operation) -> list[tuple[list[str], str]]:
    operators: list[tuple[list[str], str]] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name not in ("builtin.module", "func.func", "func.return", "relax.constant"):
            operators.append((node_labels(op.location), _text(op)))
        return ir.WalkResult.ADVANCE

    walk(module, visit, ir.WalkOrder.PRE_ORDER)
    return operators


def _called(module: ir.Operation) -> list[tuple[list[str], str]]:
    """Return the nodes and the text of each prim function that is called."""
    nodes: dict[str, list[str]] = {}
    for name, labels in kernel_calls(module):
        nodes.setdefault(name, []).extend(labels)
    functions = (op.operation for op in module.regions[0].blocks[0].operations if op.operation.name == "func.func")
    return [(nodes[symbol_name(op)], _text(op)) for op in functions if symbol_name(op) in nodes and is_prim_func(op)]


def _kernels(module: ir.Operation, wanted: str | None) -> dict[str, list[ir.Operation]]:
    """Return prim functions by name, or the one of a name, each with the modules of the kernels that it launches."""
    operations = [op.operation for op in module.regions[0].blocks[0].operations]
    launched = {symbol_name(op): op for op in operations if op.name == "gpu.module"}
    kernels = {}
    for op in operations:
        if op.name == "func.func" and is_prim_func(op) and wanted in (None, symbol_name(op)):
            modules = _launched(op) if launched else set()
            kernels[symbol_name(op)] = [op, *(module_op for name, module_op in launched.items() if name in modules)]
    return kernels


def _launched(function: ir.Operation) -> set[str]:
    names: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "gpu.launch_func":
            names.add(ir.SymbolRefAttr(op.attributes["kernel"]).value[0])
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    return names


def _text(op: ir.Operation, locations: bool = False) -> str:
    text: str = op.get_asm(
        use_local_scope=True, large_elements_limit=MAX_ELEMENTS, assume_verified=True, enable_debug_info=locations
    )
    return text
