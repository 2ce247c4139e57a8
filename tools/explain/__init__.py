"""Why the compiler does what it does: the rules that there are, and what became of each node of a model."""
