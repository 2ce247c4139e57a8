"""Import of ONNX models: `import_model` makes a relax module and a store of its weights."""

from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.importer import import_model
from mirlo.frontends.onnx.model import read_parameters
from mirlo.frontends.onnx.registry import converter
from mirlo.runtime.params import register_reader

__all__ = ["OnnxImportError", "converter", "import_model"]

register_reader(".onnx", read_parameters)
