"""Products with weights of 2, 4 and 8 bits that stay packed in memory."""

from mirlo.dialects.core.installed import ModuleIndex
from mirlo.passes.rules import LEGALIZE

INDEX = """
rows: relax.quantize_rows
"""
"""The modules by the operators that the rules of each file are for."""

LEGALIZE.defer(ModuleIndex(__name__))
