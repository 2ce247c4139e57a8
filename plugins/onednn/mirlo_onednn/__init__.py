"""Target `onednn`: regions of a model computed by the oneDNN library.

`target` holds the target for compilers; `native` runs what it made, and imports nothing of the compiler.
"""
