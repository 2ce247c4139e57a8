"""Front ends: models of other frameworks, forms of files, converters."""

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry
from mirlo.dialects.core.types import TensorType
from mirlo.driver.optional_inputs import default_inputs, page_dims
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.files import FileForm, register_file_form
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
from mirlo.frontends.stablehlo.registry import converter as stablehlo_converter
from mirlo.frontends.tensor import Tensor, concat, iota, maximum, minimum, stack, where
from mirlo.frontends.torch.custom import torch_operator
from mirlo.frontends.torch.registry import converter as aten_converter
from mirlo.frontends.tosa.registry import converter as tosa_converter
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "CompiledModel",
    "ConvertedModel",
    "DeferredModule",
    "Dim",
    "ENTRY_NAME",
    "ExampleInputs",
    "FileForm",
    "FrontendError",
    "GraphBuilder",
    "ImportedModule",
    "InputSpec",
    "Tensor",
    "TensorType",
    "aten_converter",
    "concat",
    "default_inputs",
    "dims",
    "func",
    "iota",
    "ir",
    "make_context",
    "mark_entry",
    "maximum",
    "minimum",
    "page_dims",
    "register_file_form",
    "require_package",
    "stablehlo_converter",
    "stack",
    "torch_operator",
    "tosa_converter",
    "where",
]

record_extenders(__name__)
