"""What a GPU is to compute, and how fast: made where Mirlo's compiler is, run where the GPU is.

`build` makes a folder of compiled models with inputs and expected results; everything else here runs it, and needs
Mirlo's run time, numpy and cuda-bindings only. `python -m benchmarks.gpu` does both.
"""
