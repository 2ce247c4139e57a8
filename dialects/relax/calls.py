"""Calls from the graph to prim functions and to external code."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Str, Symbol
from mirlo.dialects.core.op import operands, results
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax.base import RelaxOp


class CallTir(RelaxOp, name="call_tir"):
    """Call a prim function. Pure; the results are written to destinations that the memory plan provides."""

    TRAITS = (Trait.INTERFACE,)
    args = operands()
    outputs = results()
    callee = Symbol()


class CallDpsPacked(RelaxOp, name="call_dps_packed"):
    """Call a run-time function by name with DLPack tensors: inputs, then outputs that the caller allocates."""

    TRAITS = (Trait.INTERFACE,)
    args = operands()
    outputs = results()
    function = Str()


class CallPacked(RelaxOp, name="call_packed"):
    """Call a run-time function by name that allocates its results, in Python, from tensors and objects. Not pure.

    Values of type `!relax.object` are tensors of strings, sequences, or optional values. `options` is a JSON object
    of keyword arguments. Computations on tensors before and after the call are compiled.
    """

    TRAITS = (Trait.INTERFACE,)
    PURE = False
    args = operands()
    outputs = results()
    function = Str()
    options = Str("{}")


class CallExternal(RelaxOp, name="call_external"):
    """Call a function in an external module, `@module::@function`; its code generator replaces the call."""

    TRAITS = (Trait.INTERFACE,)
    args = operands()
    outputs = results()
    callee = Symbol()
