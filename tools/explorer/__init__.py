"""`mirlo explorer`: a model at every stage of its compilation, linked."""
