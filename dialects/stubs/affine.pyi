"""Types of the parts of `mlir.dialects.affine` that Mirlo uses, for type checkers."""

from typing import Any

from mirlo.dialects.stubs import ir

def __getattr__(name: str) -> Any: ...

class AffineApplyOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
