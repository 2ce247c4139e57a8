"""C functions with a state: for each, a function of the packed type that passes the state.

A packed function gets tensors only. `bind_state` makes of `int fn(void* state, DLTensor** tensors, int64_t count)` and
a state, a function of the packed type, in machine code: there is no Python on the way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TypeAlias

from mirlo.runtime.object_loader import compile_llvm
from mirlo.runtime.packed import C_FUNCTION, CPackedFunction

CObject: TypeAlias = "ctypes._CDataType | int | None"
"""A function pointer, an address or an object of ctypes."""
_THUNK = """
define i32 @f{number}(ptr %tensors, i64 %count) {{
  %state = inttoptr i64 {state} to ptr
  %function = inttoptr i64 {function} to ptr
  %code = tail call i32 %function(ptr %state, ptr %tensors, i64 %count)
  ret i32 %code
}}
"""


def bind_state(functions: Mapping[str, tuple[CObject, CObject]]) -> tuple[dict[str, ctypes._CFunctionType], object]:
    """Return packed functions by name, from pairs of function and state, and the owner of their code.

    Functions are ctypes function pointers or addresses, states are addresses or ctypes objects, which the caller keeps.
    """
    if not functions:
        return {}, None
    pairs = [(address_of(function), address_of(state)) for function, state in functions.values()]
    text = "".join(_THUNK.format(number=i, function=function, state=state) for i, (function, state) in enumerate(pairs))
    code = compile_llvm(text)
    functions_by_name: dict[str, ctypes._CFunctionType] = {
        name: CPackedFunction(code.address(f"f{i}")) for i, name in enumerate(functions)
    }
    return functions_by_name, code


def address_of(value: CObject) -> int:
    """Return the address that an integer, a pointer, a function pointer or a ctypes object holds."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if isinstance(value, (C_FUNCTION, ctypes.c_void_p, ctypes._Pointer)):
        return ctypes.cast(value, ctypes.c_void_p).value or 0
    return ctypes.addressof(value)
