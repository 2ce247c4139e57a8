"""Explanations of the compiler's decisions: the rules of an operator, and the compilation of each node of a model."""
