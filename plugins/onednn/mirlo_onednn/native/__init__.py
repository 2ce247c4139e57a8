"""The oneDNN library in this process: plans become primitives, which generated code calls by function pointers."""
