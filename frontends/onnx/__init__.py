"""Import of ONNX models: `import_model` makes a relax module and a store of its weights."""

from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.importer import import_model
from mirlo.frontends.onnx.registry import converter

__all__ = ["OnnxImportError", "converter", "import_model"]
