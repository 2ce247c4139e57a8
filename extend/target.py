"""Targets, passes, pipelines, forms of code."""

from mirlo.passes.code_forms import CodeForm, KernelText, LibraryForm
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import Pass, PassError, find_pass, option, register_pass
from mirlo.passes.targets import CompileOptions, Target, TargetError, ThreadLimits, find_target, register_target
from mirlo.runtime.extenders import record_extenders
from mirlo.targets.llvm import LlvmTarget, rv32
from mirlo.targets.llvm.bare_code import bare_code
from mirlo.targets.llvm.library.build import write_library
from mirlo.targets.llvm.library.sources import run_time_files

__all__ = [
    "CodeForm",
    "CompileOptions",
    "KernelText",
    "LibraryForm",
    "LlvmTarget",
    "Pass",
    "PassError",
    "Pipeline",
    "Target",
    "TargetError",
    "ThreadLimits",
    "bare_code",
    "find_pass",
    "find_target",
    "option",
    "register_pass",
    "register_target",
    "run_time_files",
    "rv32",
    "write_library",
]

record_extenders(__name__)
