"""Options of functions and commands, each declared once as a field of a dataclass; and those of `mirlo.compile`."""

from mirlo.driver.options import DEFAULTS, FRAMEWORKS, LANGUAGE_MODELS, OPTIONS
from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.nearest import nearest
from mirlo.runtime.options import (
    ANYTHING,
    BOOLEAN,
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
    "DEFAULTS",
    "FRAMEWORKS",
    "LANGUAGE_MODELS",
    "OPTIONS",
    "OptionFlag",
    "TEXT",
    "UnknownOption",
    "check_options",
    "check_value",
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
