"""Weights in the source of a model."""

from __future__ import annotations

from mirlo.targets.llvm.library.description import Description, padded

BYTES_PER_LINE = 32


def weights_text(description: Description) -> str:
    """Return the definition of the weights, constant and aligned."""
    content = b"".join(bytes(part) for part in padded(description.weights, description.weights_bytes))
    rows = [content[i : i + BYTES_PER_LINE] for i in range(0, len(content), BYTES_PER_LINE)]
    listed = ",\n".join(",".join(map(str, row)) for row in rows)
    return f"""/* The weights; the union aligns them. */
static const union {{
  unsigned char bytes[{len(content)}];
  uint64_t words;
  double numbers;
}} model_weights = {{{{
{listed}}}}};
"""
