"""Calls from the graph to the level below and to the outside."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Str, Symbol
from mirlo.dialects.core.op import operands, results
from mirlo.dialects.relax.base import RelaxOp


class CallTir(RelaxOp, name="call_tir"):
    """Call of a prim function: pure, the results are written to destinations that the memory plan provides."""

    args = operands()
    outputs = results()
    callee = Symbol()


class CallDpsPacked(RelaxOp, name="call_dps_packed"):
    """Call of a run-time function by name, with DLPack tensors: inputs, then outputs that the caller allocates."""

    args = operands()
    outputs = results()
    function = Str()


class CallPacked(RelaxOp, name="call_packed"):
    """Call of a run-time function by name that makes what it returns, in Python, from tensors and objects. Not pure.

    Values of type `!relax.object` are tensors of strings, sequences, optional values. `options`, a JSON object, holds
    keyword arguments. What is computed on tensors before and after is compiled.
    """

    PURE = False
    args = operands()
    outputs = results()
    function = Str()
    options = Str("{}")


class CallExternal(RelaxOp, name="call_external"):
    """Call of a function in an external module, `@module::@function`; its code generator replaces it."""

    args = operands()
    outputs = results()
    callee = Symbol()
