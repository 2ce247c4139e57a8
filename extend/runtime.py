"""The API of loaders of artifacts and compiled models; imports nothing of the compiler."""

from mirlo.runtime.artifact import Artifact as ModelArtifact
from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.compiler_version import compiler_version
from mirlo.runtime.dlpack import DLTensor, tensor_of_array
from mirlo.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from mirlo.runtime.errors import ArtifactError, InputError, MirloError, NoDevice
from mirlo.runtime.executable import Executable
from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.external import (
    DeviceStep,
    ExternalArtifact,
    ExternalFunctions,
    LoadContext,
    register_external_loader,
)
from mirlo.runtime.files import write_regular
from mirlo.runtime.fresh_process import fresh_command
from mirlo.runtime.loaders import LoadedCode, load_llvm, register_loader
from mirlo.runtime.locks import make_lock
from mirlo.runtime.names import file_name
from mirlo.runtime.native import NativeCode, native_code
from mirlo.runtime.object_loader import compile_llvm, define_symbol
from mirlo.runtime.packed import packed
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.system import after_fork, available_cores
from mirlo.runtime.thunks import bind_state

__all__ = [
    "ArtifactError",
    "DLTensor",
    "DeviceStep",
    "ELEMENT_TYPES",
    "Executable",
    "ExternalArtifact",
    "ExternalFunctions",
    "InputError",
    "LoadContext",
    "LoadedCode",
    "MirloError",
    "ModelArtifact",
    "NativeCode",
    "NoDevice",
    "ParameterStore",
    "TensorSpec",
    "after_fork",
    "available_cores",
    "bind_state",
    "compile_llvm",
    "compiler_version",
    "define_symbol",
    "file_name",
    "fresh_command",
    "load_llvm",
    "make_lock",
    "native_code",
    "numpy_dtype",
    "packed",
    "register_external_loader",
    "register_loader",
    "tensor_of_array",
    "write_regular",
]

record_extenders(__name__)
