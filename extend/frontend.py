"""Front ends: models of other frameworks, forms of files, converters."""

from mirlo.frontends.files import FileForm, register_file_form
from mirlo.frontends.foreign import (
    CompiledModel,
    ConvertedModel,
    ExampleInputs,
    FrontendError,
    ImportedModule,
    InputSpec,
    require_package,
)
from mirlo.frontends.stablehlo.registry import converter as stablehlo_converter
from mirlo.frontends.tensor import Tensor, concat, maximum, minimum, stack, where
from mirlo.frontends.torch.custom import torch_operator
from mirlo.frontends.torch.registry import converter as aten_converter
from mirlo.frontends.tosa.registry import converter as tosa_converter
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "CompiledModel",
    "ConvertedModel",
    "ExampleInputs",
    "FileForm",
    "FrontendError",
    "ImportedModule",
    "InputSpec",
    "Tensor",
    "aten_converter",
    "concat",
    "maximum",
    "minimum",
    "register_file_form",
    "require_package",
    "stablehlo_converter",
    "stack",
    "torch_operator",
    "tosa_converter",
    "where",
]

record_extenders(__name__)
