"""The API of loaders of artifacts and compiled models; imports nothing of the compiler."""

from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import CACHE_RANK, MODEL_FILE, TensorSpec
from mirlo.runtime.artifact import Artifact as ModelArtifact
from mirlo.runtime.cache import digest_of_file
from mirlo.runtime.container import empty_aligned, has_magic
from mirlo.runtime.dlpack import DLTensor, tensor_of_array
from mirlo.runtime.dtypes import ELEMENT_TYPES, MAX_RANK, element_type_of, numpy_dtype
from mirlo.runtime.errors import (
    ArtifactError,
    InputError,
    MirloError,
    NoDevice,
    OutOfMemoryError,
    OutOfPagesError,
    UnmetAssumption,
)
from mirlo.runtime.executable import Executable
from mirlo.runtime.extenders import compiler_version, record_extenders
from mirlo.runtime.external import (
    DeviceStep,
    ExternalArtifact,
    ExternalFunctions,
    LoadContext,
    register_external_loader,
)
from mirlo.runtime.fields import Json
from mirlo.runtime.files import open_regular, read_regular, replacing, write_regular
from mirlo.runtime.fresh_process import fresh_command
from mirlo.runtime.host_functions.image import rgb_pixels
from mirlo.runtime.huge_pages import empty_together
from mirlo.runtime.inputs import GivenOutputs
from mirlo.runtime.kinds import STRING
from mirlo.runtime.loaders import LoadedCode, load_llvm, register_loader
from mirlo.runtime.locks import make_lock, release_held_locks
from mirlo.runtime.names import CACHE_SCALE, LAST_ROWS, file_name, terminal_lines, unique_names
from mirlo.runtime.native import NativeCode, native_code
from mirlo.runtime.object_loader import compile_llvm, define_symbol
from mirlo.runtime.packed import packed
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.processes import after_fork, can_fork, raise_file_limit, run_forked, wait_readable, watch_process
from mirlo.runtime.program import Program
from mirlo.runtime.record_json import records_of_json, records_to_json
from mirlo.runtime.sources import compiler_digest, digest_of_sources, digest_of_unchanged
from mirlo.runtime.system import available_cores, keep_freed_memory, map_file
from mirlo.runtime.threads import has_openmp_team, join_openmp
from mirlo.runtime.threads import supported as has_thread_pool
from mirlo.runtime.thunks import bind_state
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.runtime.update import UpdatingCall

__all__ = [
    "ArenaPool",
    "ArtifactError",
    "CACHE_RANK",
    "CACHE_SCALE",
    "DLTensor",
    "DeviceStep",
    "ELEMENT_TYPES",
    "Executable",
    "ExternalArtifact",
    "ExternalFunctions",
    "GivenOutputs",
    "InputError",
    "Json",
    "LAST_ROWS",
    "LoadContext",
    "LoadedCode",
    "MAX_RANK",
    "MODEL_FILE",
    "MirloError",
    "ModelArtifact",
    "NativeCode",
    "NoDevice",
    "OutOfMemoryError",
    "OutOfPagesError",
    "ParameterStore",
    "Program",
    "STRING",
    "TensorSpec",
    "UnloadedModel",
    "UnmetAssumption",
    "UpdatingCall",
    "after_fork",
    "available_cores",
    "bind_state",
    "can_fork",
    "compile_llvm",
    "compiler_digest",
    "compiler_version",
    "define_symbol",
    "digest_of_file",
    "digest_of_sources",
    "digest_of_unchanged",
    "element_type_of",
    "empty_aligned",
    "empty_together",
    "file_name",
    "fresh_command",
    "has_magic",
    "has_openmp_team",
    "has_thread_pool",
    "join_openmp",
    "keep_freed_memory",
    "load_llvm",
    "make_lock",
    "map_file",
    "native_code",
    "numpy_dtype",
    "open_regular",
    "packed",
    "raise_file_limit",
    "read_regular",
    "records_of_json",
    "records_to_json",
    "register_external_loader",
    "register_loader",
    "release_held_locks",
    "replacing",
    "rgb_pixels",
    "run_forked",
    "tensor_of_array",
    "terminal_lines",
    "unique_names",
    "wait_readable",
    "watch_process",
    "write_regular",
]

record_extenders(__name__)
