"""Rules of target `llvm` for tir intrinsics, where an instruction is faster than the default expansion."""

from mirlo.targets.llvm.intrinsics import exponential, saturating  # noqa: F401  (importing registers the rules)
