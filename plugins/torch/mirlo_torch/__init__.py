"""The front end for PyTorch: modules, exported programs and their ONNX form.

PyTorch is imported with the first model.
"""

from __future__ import annotations

from mirlo.extend.frontend import ConvertedModel, ExampleInputs


class _TorchFrontend:
    """Opens `nn.Module`, `ExportedProgram` and `ONNXProgram`."""

    def convert(self, model: object, example: ExampleInputs) -> ConvertedModel:
        """Convert a model of PyTorch."""
        from mirlo_torch.program import convert_program

        return convert_program(model, example)


FRONTEND = _TorchFrontend()
