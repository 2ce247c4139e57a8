"""Reports of the placement of a model's parts: as text, as JSON, as a page, compared with an expected one."""
