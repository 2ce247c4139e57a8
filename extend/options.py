"""Options of functions and commands, each declared once as a field of a dataclass."""

from mirlo.driver.compile_option import FRAMEWORKS, WITH_CACHES, CompileOptionError, compile_option
from mirlo.runtime.errors import nearest
from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.options import (
    ANYTHING,
    BOOLEAN,
    MOST_RANKS,
    TEXT,
    OptionFlag,
    UnknownOption,
    check_options,
    check_value,
    declared_options,
    integer,
    is_list,
    is_text,
    number,
    one_of,
    option,
    optional,
    parse_bytes,
    refuse_unknown,
    values_that,
)

__all__ = [
    "ANYTHING",
    "BOOLEAN",
    "CompileOptionError",
    "FRAMEWORKS",
    "MOST_RANKS",
    "OptionFlag",
    "TEXT",
    "UnknownOption",
    "WITH_CACHES",
    "check_options",
    "check_value",
    "compile_option",
    "declared_options",
    "integer",
    "is_list",
    "is_text",
    "nearest",
    "number",
    "one_of",
    "option",
    "optional",
    "parse_bytes",
    "refuse_unknown",
    "values_that",
]

record_extenders(__name__)
