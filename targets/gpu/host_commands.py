"""Commands in host functions: calls of functions that `targets/gpu/host_code.py` defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import integer_of
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import PassError
from mirlo.passes.upstream import run_unverified
from mirlo.targets.gpu.commands import Site
from mirlo.targets.gpu.host import RUN
from mirlo.targets.gpu.host_values import HostValues, as_index
from mirlo.targets.gpu.program import Command, HostProgram, Range, SplitParameter, TensorMap, Value

COMMAND, WAIT, ANSWER = "mirlo_command_", "mirlo_wait", "mirlo_answer"
"""Functions of the device: give a command of this many words; execute all commands; return the answer of the last."""
LaunchArgument = Range | TensorMap | ir.Value
"""What a kernel receives."""
Parts = Mapping[str, Sequence[SplitParameter]]
"""The split parameters of kernels."""


class CommandEmitter:
    """Emits the commands of a program's sites."""

    def __init__(self, program: HostProgram, values: HostValues) -> None:
        self._program = program
        self._values = values

    def emit(self, site: Site, words: Sequence[Value], waits: bool = False) -> None:
        """Emit a command of a new site; if it `waits`, execute it before later code."""
        number = len(self._program.sites)
        self._program.sites.append(site)
        i1 = ir.IntegerType.get_signless(1)
        self._call(f"{COMMAND}{len(words)}", [number, *words], i1)
        if waits:
            self._call(WAIT, [], i1)

    def result(self) -> ir.Value:
        """Return the result of the last command that the host waited for."""
        return self._call(ANSWER, [], ir.IndexType.get())

    def _call(self, name: str, words: Sequence[Value], result: ir.Type) -> ir.Value:
        assert self._values.device is not None
        operands = [self._values.device, *map(as_index, words)]
        call_result: ir.Value = func.CallOp([result], ir.FlatSymbolRefAttr.get(name), operands).results[0]
        return call_result

    def finish(self) -> None:
        """Declare the called functions, simplify, and record the constant commands."""
        module = self._program.module
        _declare(module)
        run_unverified("builtin.module(canonicalize,cse)", module.operation)
        run = next(op.operation for op in module.body.operations if symbol_name(op) == RUN)
        calls = find(run, "func.call")
        names = list(map(_callee, calls))
        self._program.commands = [
            _command(call) for call, name in zip(calls, names, strict=True) if name.startswith(COMMAND)
        ]
        kinds = {op.operation.name for op in run.regions[0].blocks[0].operations}
        self._program.is_static = (
            kinds <= {"arith.constant", "func.call", "func.return"}
            and all(name.startswith(COMMAND) or name == WAIT for name in names)
            and all(None not in command.words for command in self._program.commands)
        )


def _declare(module: ir.Module) -> None:
    declared = set(map(symbol_name, module.body.operations))
    for call in find(module.operation, "func.call"):
        name = _callee(call)
        if name not in declared:
            declared.add(name)
            kinds = [value.type for value in call.operands], [value.type for value in call.results]
            with ir.InsertionPoint(module.body):
                func.FuncOp(name, ir.FunctionType.get(*kinds), visibility="private")


def _callee(call: ir.Operation) -> str:
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)


def _command(call: ir.Operation) -> Command:
    site, *words = map(integer_of, list(call.operands)[1:])
    assert site is not None
    return Command(site, tuple(words))


def in_parts(arguments: Sequence[LaunchArgument], parts: Sequence[SplitParameter]) -> list[LaunchArgument]:
    """Return the arguments of a kernel that takes some of them in parts, after all others."""
    positions = {split.position for split in parts}
    result = [argument for i, argument in enumerate(arguments) if i not in positions]
    for split in parts:
        whole, size = arguments[split.position], split.part_bytes
        assert isinstance(whole, Range)
        if not isinstance(whole.offset, int) or not isinstance(whole.size, int):
            raise PassError(f"a buffer of more than {size} bytes has a run-time offset, and cannot be split")
        result += [whole.part(at, min(size, whole.size - at)) for at in range(0, whole.size, size)]
    return result
