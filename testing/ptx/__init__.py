"""An NVIDIA GPU made of numpy: it executes the text of PTX, so that what it computes can be seen without a GPU.

    from mirlo.testing.ptx import run_kernel
    run_kernel(ptx, "kernel", grid=(4, 1, 1), block=128, args=[x, y, 7])      # arrays are worked on in place

    from mirlo.testing.ptx.driver import emulated
    with emulated("sm_90a", races=True) as driver:                            # in place of CUDA's driver
        compiled = mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False)
        y = compiled(x)
    driver.launched, driver.opcodes                                           # which kernels, which instructions

With `races`, accesses of two warps to the same shared memory that no barrier puts in an order are found as well, in the
first blocks of each launch. `driver.edit` changes the PTX before it is loaded: to see that something is found.

What instructions mean is taken from NVIDIA's PTX manual, not from Mirlo. Besides results it finds: accesses outside of
all memory or not aligned, shared memory that is read and was never written or is still being copied to, registers that
were not written, barriers to which not all threads come, kernels that hang, and what a chip does not have.
"""

from __future__ import annotations

from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.launch import launch, run_kernel

__all__ = ["KernelError", "PtxError", "launch", "run_kernel"]
