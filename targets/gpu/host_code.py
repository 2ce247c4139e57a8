"""Code of host functions: lowered as for target `llvm`, and kept as LLVM's bitcode, which depends on no machine.

The loader compiles it for its own machine, so that a model for a GPU runs beside any CPU.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.memory.names import CHECK
from mirlo.passes.upstream import run_unverified
from mirlo.targets.gpu.host import RUN, SIZES
from mirlo.targets.gpu.host_commands import ANSWER, COMMAND, WAIT
from mirlo.targets.gpu.host_values import DIVIDE
from mirlo.targets.gpu.program import HostProgram
from mirlo.targets.host.llvm_ir import llvmlite, lower_pipeline, to_llvm_ir
from mirlo.targets.host.runtime_calls import define, return_on_failure

_DEVICE = "!llvm.struct<(ptr, i64, i64, ptr, i64, i64)>"
"""`mirlo.targets.gpu.host.HostDevice`."""
_WORDS, _CAPACITY, _USED, _EXECUTE, _ANSWER, _ERROR = range(6)


def compile_host(program: HostProgram) -> bytes:
    """Return the bitcode of the host functions of a program, whose module is consumed; nothing if it has none."""
    if not program.is_compiled:
        return b""
    binding = llvmlite()
    module = binding.parse_assembly(host_llvm_ir(program.module), binding.create_context())
    return bytes(module.as_bitcode())


def host_llvm_ir(module: ir.Module) -> str:
    """Return the LLVM IR of a module of host functions, which is consumed."""
    run_unverified(lower_pipeline(calls_kernels=True), module.operation)
    define(module, RUN, 0)
    functions = {symbol_name(op): op.operation for op in module.body.operations}
    texts = {name: _text(name) for name in functions if name not in (RUN, SIZES, CHECK)}
    for name in texts:
        functions[name].erase()
    with module.operation.location:
        new_module = ir.Module.parse("\n".join(texts.values()))
    for op in new_module.body.operations:
        module.body.append(op.operation.clone())
    may_fail = set(texts) - {ANSWER}
    for name in (RUN, SIZES):
        if name in functions:
            return_on_failure(functions[name], may_fail)
    module.operation.verify()
    return to_llvm_ir(module)


def _text(name: str) -> str:
    """Return the body of a function of the device, in the LLVM dialect."""
    if name == WAIT:
        return _wait()
    if name == ANSWER:
        return _answer()
    if name == DIVIDE:
        return _divide()
    return _command(name, int(name.removeprefix(COMMAND)) + 1)


def _field(name: str, number: int, kind: str) -> str:
    """Return the lines that load a field of the device."""
    return f"""
        %{name}_p = llvm.getelementptr %device[0, {number}] : (!llvm.ptr) -> !llvm.ptr, {_DEVICE}
        %{name} = llvm.load %{name}_p : !llvm.ptr -> {kind}"""


def _command(name: str, count: int) -> str:
    """Return the code that appends words to the commands, and first executes those before if there is no room."""
    words = ", ".join(f"%w{i}: i64" for i in range(count))
    stores = "".join(
        f"""
        %p{i} = llvm.getelementptr %words[{i}] : (!llvm.ptr) -> !llvm.ptr, i64
        llvm.store %w{i}, %p{i} : i64, !llvm.ptr""" for i in range(count)
    )  # fmt: skip
    return f"""
      llvm.func internal @{name}(%device: !llvm.ptr, {words}) -> i1 attributes {{no_inline}} {{
        %count = llvm.mlir.constant({count} : i64) : i64
        %zero = llvm.mlir.constant(0 : i32) : i32
        %no = llvm.mlir.constant(false) : i1
        %yes = llvm.mlir.constant(true) : i1{_field("used", _USED, "i64")}{_field("capacity", _CAPACITY, "i64")}
        %wanted = llvm.add %used, %count : i64
        %fits = llvm.icmp "sle" %wanted, %capacity : i64
        llvm.cond_br %fits, ^write, ^execute
      ^execute:{_field("function", _EXECUTE, "!llvm.ptr")}
        %status = llvm.call %function(%device) : !llvm.ptr, (!llvm.ptr) -> i32
        %failed = llvm.icmp "ne" %status, %zero : i32
        llvm.cond_br %failed, ^fail, ^write
      ^write:{_field("begin", _USED, "i64")}{_field("all", _WORDS, "!llvm.ptr")}
        %words = llvm.getelementptr %all[%begin] : (!llvm.ptr, i64) -> !llvm.ptr, i64{stores}
        %end = llvm.add %begin, %count : i64
        llvm.store %end, %begin_p : i64, !llvm.ptr
        llvm.return %no : i1
      ^fail:
        llvm.return %yes : i1
      }}"""


def _wait() -> str:
    return f"""
      llvm.func internal @{WAIT}(%device: !llvm.ptr) -> i1 {{
        %zero = llvm.mlir.constant(0 : i32) : i32{_field("function", _EXECUTE, "!llvm.ptr")}
        %status = llvm.call %function(%device) : !llvm.ptr, (!llvm.ptr) -> i32
        %failed = llvm.icmp "ne" %status, %zero : i32
        llvm.return %failed : i1
      }}"""


def _answer() -> str:
    return f"""
      llvm.func internal @{ANSWER}(%device: !llvm.ptr) -> i64 {{{_field("answer", _ANSWER, "i64")}
        llvm.return %answer : i64
      }}"""


def _divide() -> str:
    return f"""
      llvm.func internal @{DIVIDE}(%device: !llvm.ptr, %a: i64, %b: i64, %least: i64) -> i1 {{
        %zero = llvm.mlir.constant(0 : i64) : i64
        %minus = llvm.mlir.constant(-1 : i64) : i64
        %by_zero = llvm.icmp "eq" %b, %zero : i64
        %by_minus = llvm.icmp "eq" %b, %minus : i64
        %of_least = llvm.icmp "eq" %a, %least : i64
        %overflows = llvm.and %by_minus, %of_least : i1
        %failed = llvm.or %by_zero, %overflows : i1
        llvm.cond_br %failed, ^report, ^done
      ^report:
        %one = llvm.mlir.constant(1 : i64) : i64{_field("error", _ERROR, "i64")}
        llvm.store %one, %error_p : i64, !llvm.ptr
        llvm.br ^done
      ^done:
        llvm.return %failed : i1
      }}"""
