"""Types of the parts of `mlir.dialects.llvm` that Mirlo uses, for type checkers."""

from typing import Any

def __getattr__(name: str) -> Any: ...
