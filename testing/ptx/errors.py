"""What the emulator finds wrong with a kernel."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError


class PtxError(MirloError):
    """Text that is no PTX, or an instruction that the emulator does not know."""


class KernelError(MirloError):
    """What a kernel does wrong, or what the manual leaves undefined: with the kernel, the line and the instruction."""
