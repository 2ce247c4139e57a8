"""The safe layer over MLIR's Python bindings: operation classes, attributes, types, contexts, surgery."""
