"""Compiles what a GPU is to run into a folder; this part needs Mirlo's compiler, and no GPU."""
