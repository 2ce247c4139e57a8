"""The oneDNN library in this process: plans become primitives, primitives a function of generated code."""
