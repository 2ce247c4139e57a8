"""Default legalization rules: one file per family of operators."""
