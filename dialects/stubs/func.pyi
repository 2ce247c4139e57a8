"""Types of the parts of `mlir.dialects.func` that Mirlo uses, for type checkers."""

from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.stubs import ir

def __getattr__(name: str) -> Any: ...

class FuncOp(ir.OpView):
    def __init__(
        self,
        name: str,
        type: ir.FunctionType | tuple[Sequence[ir.Type], Sequence[ir.Type]],
        *,
        visibility: str | None = None,
        body_builder: Callable[[FuncOp], object] | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | bool | None = None,
    ) -> None: ...
    @property
    def is_external(self) -> bool: ...
    @property
    def body(self) -> ir.Region: ...
    @property
    def type(self) -> ir.FunctionType: ...
    @property
    def visibility(self) -> ir.Attribute: ...
    @property
    def name(self) -> ir.StringAttr: ...  # type: ignore[override]
    @property
    def entry_block(self) -> ir.Block: ...
    def add_entry_block(self, arg_locs: Sequence[ir.Location] | None = None) -> ir.Block: ...
    arg_attrs: Any
    @property
    def arguments(self) -> ir.BlockArgumentList: ...
    @property
    def result_attrs(self) -> Any: ...

class ReturnOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class CallOp(ir.OpView):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
