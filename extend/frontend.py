"""Front ends: models of other frameworks, forms of files, converters.

Converters of front ends in packages, such as `tosa_converter`, are names of this module for one version.
"""

from mirlo.dialects.bindings import func, ir, new_context, stablehlo
from mirlo.dialects.context import graph_operations, make_context
from mirlo.dialects.core import dims
from mirlo.dialects.core.attributes import dense_attribute, read_dense, resource_bytes
from mirlo.dialects.core.dims import Dim, SymbolicDim, UndecidedDim, symbols_of
from mirlo.dialects.core.dtypes import DTYPES, DType, dtype, dtype_of_mlir
from mirlo.dialects.core.installed import import_modules, register_in
from mirlo.dialects.core.op import DialectOp, OpError
from mirlo.dialects.core.rank_layout import (
    RankGroups,
    RankLayout,
    Split,
    group_attributes,
    is_regular,
    tile_attributes,
    tile_layout,
)
from mirlo.dialects.core.surgery import blocks
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry, named_value
from mirlo.dialects.core.types import TensorType, dims_of
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallDpsPacked, CallTir
from mirlo.dialects.relax.collectives import FromParts
from mirlo.dialects.relax.elementwise import Compare
from mirlo.dialects.relax.infer import BOOL, CHANNELS_LAST, FLOAT
from mirlo.dialects.relax.vision import RATIO
from mirlo.driver.optional_inputs import default_inputs, has_pages, page_dims
from mirlo.frontends.builder import GraphBuilder, OperationView, UnsupportedOperation, broadcast_shape
from mirlo.frontends.files import FileForm, names_dialect, register_file_form
from mirlo.frontends.foreign import (
    CompiledModel,
    ConvertedModel,
    DeferredModule,
    ExampleInputs,
    FrontendError,
    ImportedModule,
    InputSpec,
    require_package,
)
from mirlo.frontends.mlir.body import ProgramImport
from mirlo.frontends.mlir.converters import ConverterTable, call_converter, convert_by, unexpected_result
from mirlo.frontends.mlir.importer import Interface, import_program
from mirlo.frontends.mlir.operation import BodyImporter, MlirOperation, Parts, Scope, enumeration
from mirlo.frontends.mlir.parse import parsing
from mirlo.frontends.onnx.model import LoadedModel, load_shared
from mirlo.frontends.prims import SpecializablePrim, SpecializedPrims
from mirlo.frontends.sizes import OF_INPUTS, Undecided
from mirlo.frontends.tensor import SIZES, Tensor, concat, iota, maximum, minimum, number, stack, where
from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.former_names import former_names
from mirlo.runtime.params import ParameterStore

__all__ = [
    "BOOL",
    "BodyImporter",
    "CHANNELS_LAST",
    "CallDpsPacked",
    "CallTir",
    "Compare",
    "CompiledModel",
    "ConvertedModel",
    "ConverterTable",
    "DTYPES",
    "DType",
    "DeferredModule",
    "DialectOp",
    "Dim",
    "ENTRY_NAME",
    "ExampleInputs",
    "FLOAT",
    "FileForm",
    "FromParts",
    "FrontendError",
    "GraphBuilder",
    "ImportedModule",
    "InputSpec",
    "Interface",
    "LoadedModel",
    "MlirOperation",
    "OF_INPUTS",
    "OPS",
    "OpError",
    "OperationView",
    "ParameterStore",
    "Parts",
    "ProgramImport",
    "RATIO",
    "RankGroups",
    "RankLayout",
    "SIZES",
    "Scope",
    "SpecializablePrim",
    "SpecializedPrims",
    "Split",
    "SymbolicDim",
    "Tensor",
    "TensorType",
    "Undecided",
    "UndecidedDim",
    "UnsupportedOperation",
    "blocks",
    "broadcast_shape",
    "call_converter",
    "concat",
    "convert_by",
    "default_inputs",
    "dense_attribute",
    "dims",
    "dims_of",
    "dtype",
    "dtype_of_mlir",
    "enumeration",
    "func",
    "graph_operations",
    "group_attributes",
    "has_pages",
    "import_modules",
    "import_program",
    "iota",
    "ir",
    "is_regular",
    "load_shared",
    "make_context",
    "mark_entry",
    "maximum",
    "minimum",
    "named_value",
    "names_dialect",
    "new_context",
    "number",
    "page_dims",
    "parsing",
    "read_dense",
    "register_file_form",
    "register_in",
    "require_package",
    "resource_bytes",
    "stablehlo",
    "stack",
    "symbols_of",
    "tile_attributes",
    "tile_layout",
    "unexpected_result",
    "where",
]


__getattr__ = former_names(__name__)


record_extenders(__name__)
