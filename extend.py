"""The API for extensions: operators, rules, ONNX converters, passes, targets.

    from mirlo.extend import DialectOp, legalize, operand, register_dialect

A package registers its targets, dialects, passes and rules with the entry points `mirlo.targets`, `mirlo.dialects`,
`mirlo.passes` and `mirlo.rules`, and loaders of its targets' artifacts with `mirlo.loaders`. A single file is loaded
with `--plugin FILE` of `mirlo`, `--load-pass-plugin FILE` of `mirlo-opt`.
"""

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context, register_dialect
from mirlo.dialects.core.attributes import Bool, Dims, ElementType, Float, Floats, Int, Ints, Str, Strs, Symbol
from mirlo.dialects.core.conditions import (
    require_at_most,
    require_elements,
    require_equal,
    require_multiple,
    require_part,
)
from mirlo.dialects.core.op import DialectOp, OpError, operand, operands, optional, result, results
from mirlo.dialects.core.traits import AxisAttributes, OnnxName, Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir import compute
from mirlo.dialects.tir.own_intrinsics import define_intrinsic
from mirlo.frontends.files import FileForm, register_file_form
from mirlo.frontends.foreign import ConvertedModel, ExampleInputs, FrontendError, ImportedModule
from mirlo.frontends.onnx.check import check_model
from mirlo.frontends.onnx.node import NodeTrait
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.stablehlo.registry import converter as stablehlo_converter
from mirlo.frontends.tensor import Tensor, concat, maximum, minimum, stack, where
from mirlo.frontends.torch.custom import torch_operator
from mirlo.frontends.torch.registry import converter as aten_converter
from mirlo.frontends.tosa.registry import converter as tosa_converter
from mirlo.passes.byoc.codegen import (
    Artifact,
    CodeGenerator,
    DeclinedRegions,
    ExternalFunction,
    ExternalModule,
    ExternalNode,
    ExternalValue,
    Tunable,
)
from mirlo.passes.byoc.command_queues import (
    Banks,
    Hazard,
    MemorySpan,
    QueuedCommand,
    QueueError,
    QueueModel,
    QueueStep,
    QueueToken,
    Semaphore,
    check_signals,
    synchronize,
)
from mirlo.passes.byoc.connected import several
from mirlo.passes.byoc.helpers import (
    conv_bias_activation,
    functions_of_one_operand,
    matmul_bias_activation,
    repeat,
    with_activation,
)
from mirlo.passes.byoc.operators import is_const, is_op, is_var, maybe, same_shape_as, wildcard
from mirlo.passes.byoc.rewrite import rewrite, rewriter
from mirlo.passes.byoc.tables import pattern_table
from mirlo.passes.byoc.tir_patterns import contraction, is_call_tir
from mirlo.passes.byoc.tir_patterns import elementwise as elementwise_prim
from mirlo.passes.byoc.view import Step
from mirlo.passes.code_forms import CodeForm, KernelText, LibraryForm
from mirlo.passes.figures import Figures
from mirlo.passes.legalize.helpers import elementwise
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rule_choices import Choice
from mirlo.passes.rules import INTRINSIC, LEGALIZE, SCHEDULE, decline, decline_machine, intrinsic, legalize, schedule
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.tuned import tuned_values
from mirlo.passes.schedule.words.command_intrin import command_intrin
from mirlo.passes.schedule.words.command_tree import (
    AffineAddress,
    CommandGuard,
    CommandLoop,
    CommandSite,
    CommandTree,
    LoopOperand,
)
from mirlo.passes.schedule.words.commands import TileCommand, TileCommands, TileOperand
from mirlo.passes.schedule.words.group_plan import WordsPlan, words_of
from mirlo.passes.schedule.words.schedule import Schedule
from mirlo.passes.schedule.words.scheduled_prim import scheduled
from mirlo.passes.schedule.words.tensorize import tensor_intrin
from mirlo.passes.schedule.words.tree import ScheduleError
from mirlo.passes.targets import CompileOptions, Target, ThreadLimits, find_target, register_target
from mirlo.runtime.artifact import Artifact as ModelArtifact
from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.compiler_version import compiler_version
from mirlo.runtime.errors import ArtifactError, NoDevice
from mirlo.runtime.external import (
    DeviceStep,
    ExternalArtifact,
    ExternalFunctions,
    LoadContext,
    register_external_loader,
)
from mirlo.runtime.loaders import LoadedCode, load_llvm, register_loader
from mirlo.runtime.native import NativeCode, native_code
from mirlo.runtime.object_loader import define_symbol
from mirlo.runtime.packed import packed
from mirlo.runtime.params import ParameterStore
from mirlo.targets.c.loops import CLoopsError, c_function
from mirlo.targets.c.native import define_c_functions
from mirlo.targets.c.processor import CProcessor
from mirlo.targets.gpu.commands import Step as LaunchStep
from mirlo.targets.gpu.commands import StepRange
from mirlo.targets.gpu.device_layout import Pointers, Region, WhenCalled, constants_of, params_of, pointers
from mirlo.targets.gpu.frames import CallFrame, CallRecord, Frames
from mirlo.targets.gpu.kernels import KernelCode
from mirlo.targets.gpu.pipeline import compile_pipeline as gpu_pipeline
from mirlo.targets.gpu.worker import StepWorker
from mirlo.targets.llvm.library.build import write_library
from mirlo.targets.llvm.library.sources import run_time_files
from mirlo.targets.llvm.schedule.part_rules import part_rule
from mirlo.targets.spirv.arguments import SCALARS
from mirlo.targets.spirv.binary import lower_to_spirv
from mirlo.targets.spirv.emit import emit_kernels, kernel_texts
from mirlo.targets.spirv.environment import WEBGPU, SpirvEnvironment

__all__ = [
    "Artifact", "AxisAttributes", "Bool", "CLoopsError", "CProcessor", "Choice", "CodeGenerator", "ConvertedModel",
    "DeclinedRegions",
       "ExampleInputs", "FrontendError", "ImportedModule", "DeviceStep", "DialectOp", "Dims", "ElementType",
    "ExternalArtifact", "Figures", "ExternalFunction", "ExternalFunctions", "ExternalModule", "ExternalNode",
    "ExternalValue", "Step", "Float", "Floats", "INTRINSIC", "Int", "Ints", "LEGALIZE",
    "LoadContext", "NativeCode", "NodeTrait", "OnnxName", "OpError", "Pass", "PassError", "Pipeline", "Precision",
    "SCHEDULE", "Schedule", "ScheduleError", "Str", "Strs", "Symbol", "TileCommand", "TileCommands", "TileOperand",
    "CodeForm", "KernelText", "LibraryForm", "Target", "TensorType", "ThreadLimits", "Trait", "Tunable",
    "c_function", "compute",
    "command_intrin", "check_model", "compiler_version", "contraction", "run_time_files",
    "conv_bias_activation", "converter", "decline", "decline_machine",
    "define_c_functions", "define_intrinsic", "define_symbol",
    "elementwise", "elementwise_prim", "find_target", "functions_of_one_operand", "intrinsic",
    "is_call_tir", "is_const", "is_op", "is_var",
    "legalize", "load_llvm", "make_context", "matmul_bias_activation", "maybe", "native_code", "operand", "operands",
    "option", "optional", "packed", "pattern_table", "register_dialect", "register_external_loader", "register_loader",
    "register_pass", "register_target", "repeat", "require_at_most", "require_elements", "require_equal",
    "require_multiple", "require_part", "result", "results", "rewrite", "rewriter", "same_shape_as", "schedule",
    "scheduled", "several", "tensor_intrin", "Tensor", "aten_converter", "concat", "maximum", "minimum", "stack",
    "stablehlo_converter", "tosa_converter", "FileForm", "register_file_form",
    "CommandGuard", "CommandLoop", "CommandSite", "CommandTree", "AffineAddress", "LoopOperand",
    "Banks", "Hazard", "MemorySpan", "QueueError", "QueueModel", "QueueStep", "QueuedCommand", "QueueToken",
    "Semaphore", "check_signals", "synchronize",
    "ArtifactError", "CallFrame", "CallRecord", "CompileOptions", "Frames", "KernelCode", "LaunchStep", "LoadedCode",
    "ModelArtifact", "NoDevice", "Pointers", "SCALARS", "SpirvEnvironment", "StepRange", "StepWorker",
    "WEBGPU", "WhenCalled", "constants_of", "emit_kernels", "gpu_pipeline", "ir", "kernel_texts",
    "lower_to_spirv", "params_of", "pointers", "ParameterStore", "Region", "TensorSpec",
    "BlockGroup", "Kernel", "ScheduleContext", "WordsPlan", "part_rule", "words_of",
    "where", "write_library", "torch_operator", "tuned_values", "wildcard", "with_activation",
]  # fmt: skip
