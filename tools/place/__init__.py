"""Reports of where the parts of a model go: as text, as JSON, as a page, compared with what is expected."""
