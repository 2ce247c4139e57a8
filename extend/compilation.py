"""Compilations: the options of `mirlo.compile`, requests, and strategies of packages.

    [project.entry-points."mirlo.compile_options"]
    OPTION = "package.options:OPTIONS"

    [project.entry-points."mirlo.strategies"]
    OPTION = "package.strategy:STRATEGY"

name a dataclass with the option, declared with `compile_option` of `mirlo.extend.options`, and a `CompileStrategy`.
"""

from mirlo.driver.compile_strategy import CompileStrategy
from mirlo.driver.options import DEFAULTS, OPTIONS
from mirlo.driver.request import CompileFunction, CompileRequest
from mirlo.passes.options import split_list
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "CompileFunction",
    "CompileRequest",
    "CompileStrategy",
    "DEFAULTS",
    "OPTIONS",
    "split_list",
]

record_extenders(__name__)
