"""GPU targets: kernels, launches, memory of devices."""

from mirlo.runtime.extenders import record_extenders
from mirlo.targets.gpu.commands import Step as LaunchStep
from mirlo.targets.gpu.commands import StepRange
from mirlo.targets.gpu.device_layout import Pointers, Region, WhenCalled, constants_of, params_of, pointers
from mirlo.targets.gpu.frames import CallFrame, CallRecord, Frames
from mirlo.targets.gpu.kernels import KernelCode
from mirlo.targets.gpu.pipeline import compile_pipeline as gpu_pipeline
from mirlo.targets.gpu.worker import StepWorker
from mirlo.targets.spirv.arguments import SCALARS
from mirlo.targets.spirv.binary import lower_to_spirv
from mirlo.targets.spirv.emit import emit_kernels, kernel_texts
from mirlo.targets.spirv.environment import WEBGPU, SpirvEnvironment

__all__ = [
    "CallFrame",
    "CallRecord",
    "Frames",
    "KernelCode",
    "LaunchStep",
    "Pointers",
    "Region",
    "SCALARS",
    "SpirvEnvironment",
    "StepRange",
    "StepWorker",
    "WEBGPU",
    "WhenCalled",
    "constants_of",
    "emit_kernels",
    "gpu_pipeline",
    "kernel_texts",
    "lower_to_spirv",
    "params_of",
    "pointers",
]

record_extenders(__name__)
