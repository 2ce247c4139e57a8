"""Rules of target `llvm` for tir intrinsics, where an instruction is faster than the default expansion."""

from mirlo.dialects.core.installed import ModuleIndex
from mirlo.passes.rules import INTRINSIC

INDEX = """
exponential: exp exp2 sigmoid
saturating: sat_adds sat_addu sat_subs sat_subu
"""
"""The modules by the intrinsics that the rules of each file are for."""

INTRINSIC.defer(ModuleIndex(__name__))
