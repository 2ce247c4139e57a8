"""The API for extensions, a module for each kind of them.

    from mirlo.extend.ops import DialectOp, operand, register_dialect
    from mirlo.extend.rules import legalize

| module | for |
| --- | --- |
| `ops` | operators: classes, shape inference, ONNX converters, the definition of a result's element |
| `rules` | rules from operators to loops, from intrinsics to instructions |
| `schedules` | schedules of kernels: the primitives, and the interface of rules |
| `target` | targets, passes, pipelines, forms of code |
| `codegen` | external code generators |
| `frontend` | models of other frameworks, programs in MLIR, converters |
| `files` | forms of files; imports little of the compiler |
| `runtime` | loaders of artifacts; imports nothing of the compiler |
| `gpu` | targets that launch kernels on a device |
| `nvidia` | code generators for libraries of NVIDIA |
| `inspect` | programs for tools: problems, names, rules, the code of each line |
| `passes` | passes over graphs: operations, constants, how operators are divided |
| `compilation` | the options of `mirlo.compile`, requests, strategies of packages |
| `command` | commands of `mirlo`, folders with models |
| `options` | options of functions and commands, each declared once |
| `library` | parts of models that several front ends build |
| `quantize` | weights of a few bits: options, codes, the report of errors |
| `process` | bounded processes for input that is not trusted |
| `ranks` | the place of a process among those of one model, their heartbeat, memory that they share |

A package registers its targets, dialects, passes and rules with the entry points `mirlo.targets`, `mirlo.dialects`,
`mirlo.passes` and `mirlo.rules`, and loaders of its targets' artifacts with `mirlo.loaders`. A single file is loaded
with `--plugin FILE` of `mirlo`, `--load-pass-plugin FILE` of `mirlo-opt`.

The names of these modules are also names of `mirlo.extend` itself for one version, with a `DeprecationWarning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.runtime.former_names import former_names

if TYPE_CHECKING:
    from mirlo.extend.codegen import *
    from mirlo.extend.frontend import *
    from mirlo.extend.gpu import *
    from mirlo.extend.ops import *
    from mirlo.extend.rules import *
    from mirlo.extend.runtime import *
    from mirlo.extend.schedules import *
    from mirlo.extend.target import *

_MOVED = {
    "codegen": (
        "Artifact CLoopsError CProcessor CodeGenerator DeclinedRegions ExternalFunction ExternalModule "
        "ExternalNode ExternalValue Figures "
        "Step Tunable c_function contraction conv_bias_activation "
        "define_c_functions elementwise_prim functions_of_one_operand is_call_tir is_const is_op is_var "
        "matmul_bias_activation maybe pattern_table repeat rewrite rewriter same_shape_as several "
        "wildcard with_activation"
    ),
    "frontend": (
        "ConvertedModel ExampleInputs FileForm FrontendError ImportedModule Tensor aten_converter concat "
        "maximum minimum register_file_form stablehlo_converter stack torch_operator tosa_converter where"
    ),
    "gpu": (
        "CallFrame CallRecord Frames KernelCode LaunchStep Pointers Region SCALARS SpirvEnvironment StepRange "
        "StepWorker WEBGPU WhenCalled constants_of emit_kernels gpu_pipeline kernel_texts lower_to_spirv "
        "params_of pointers"
    ),
    "ops": (
        "AxisAttributes Bool DialectOp Dims ElementType Float Floats Int Ints NodeTrait OnnxName OpError "
        "Precision Str Strs Symbol TensorType Trait check_model compute converter define_intrinsic "
        "elementwise ir make_context operand operands optional register_dialect require_at_most "
        "require_elements require_equal require_multiple require_part result results"
    ),
    "rules": ("Choice INTRINSIC LEGALIZE SCHEDULE decline decline_machine intrinsic legalize schedule"),
    "runtime": (
        "ArtifactError DeviceStep ExternalArtifact ExternalFunctions LoadContext LoadedCode ModelArtifact "
        "NativeCode NoDevice ParameterStore TensorSpec compiler_version define_symbol load_llvm native_code "
        "packed register_external_loader register_loader"
    ),
    "schedules": (
        "BlockGroup Kernel Schedule ScheduleContext ScheduleError TileCommand TileCommands TileOperand "
        "command_intrin part_rule scheduled tensor_intrin tuned_values"
    ),
    "target": (
        "CodeForm CompileOptions KernelText LibraryForm Pass PassError Pipeline Target ThreadLimits "
        "find_target option register_pass register_target run_time_files write_library"
    ),
}
"""The names that `mirlo.extend` had before it was divided, by the modules that have them."""
_MODULES = {name: module for module, names in _MOVED.items() for name in names.split()}

__all__ = sorted(_MODULES)

_ADDRESSES = {name: f"mirlo.extend.{module}:{name}" for name, module in _MODULES.items()}
_ADDRESSES |= {
    "RuleChoice": "mirlo.passes.rule_choices:NamedChoice",
    "WordsPlan": "mirlo.extend.schedules:PrimitivesPlan",
    "words_of": "mirlo.extend.schedules:schedule_of",
}
__getattr__ = former_names(__name__, _ADDRESSES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
