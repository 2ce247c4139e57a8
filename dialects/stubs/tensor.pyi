"""Types of the parts of `mlir.dialects.tensor` that Mirlo uses, for type checkers."""

from typing import Any

from mirlo.dialects.stubs import ir

def __getattr__(name: str) -> Any: ...

class ExtractOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class DimOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class EmptyOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
