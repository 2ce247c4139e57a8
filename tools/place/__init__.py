"""Which part of a model goes to which target, told, drawn, compared and decided by cost."""
