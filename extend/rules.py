"""Rules that lower operators to loops and intrinsics to instructions."""

from mirlo.passes.rule_choices import Choice
from mirlo.passes.rules import (
    INTRINSIC,
    LEGALIZE,
    SCHEDULE,
    Decline,
    RuleWarning,
    decline,
    decline_machine,
    intrinsic,
    legalize,
    schedule,
)
from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.former_names import former_names

__all__ = [
    "Choice",
    "Decline",
    "INTRINSIC",
    "LEGALIZE",
    "RuleWarning",
    "SCHEDULE",
    "decline",
    "decline_machine",
    "intrinsic",
    "legalize",
    "schedule",
]

record_extenders(__name__)

__getattr__ = former_names(__name__, {"RuleChoice": "mirlo.passes.rule_choices:NamedChoice"})
