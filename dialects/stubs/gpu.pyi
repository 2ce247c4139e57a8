"""Types of the parts of `mlir.dialects.gpu` that Mirlo uses, for type checkers."""

from typing import Any

from mirlo.dialects.stubs import ir

def __getattr__(name: str) -> Any: ...

class LaunchOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class TerminatorOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class ShuffleOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class BarrierOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class GPUModuleOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class GPUFuncOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
