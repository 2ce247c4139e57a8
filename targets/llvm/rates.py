"""Rates of this machine's processor, which `mirlo doctor --measure` measures, in place of the machine model's.

They are kept in a file beside the compilation cache, for the processor that they were measured on. Code for other
processors is planned by the table of `cpus.py`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from pathlib import Path

from mirlo.runtime.files import read_regular, write_regular
from mirlo.runtime.private_folders import make_private, unsafe_folder
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import user_cache

FILE = "machine.json"
LARGEST_RATE = 1024.0
"""Bytes per cycle, or products of bf16 for one of f32, above which a stored rate is an error."""


@dataclass(frozen=True)
class Rates:
    """Measured fields of `Machine`; None where this system permits no measurement."""

    fma_per_cycle: float | None = None
    bf16_dot_rate: float | None = None
    l2_bytes_per_cycle: float | None = None
    l3_bytes_per_cycle: float | None = None
    memory_bytes_per_cycle: float | None = None
    exchanged_bytes_per_cycle: float | None = None

    @property
    def known(self) -> dict[str, float]:
        """Return the rates that were measured, by the names of the fields of `Machine`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def rates_file() -> Path:
    """Return the path of this user's rates."""
    return user_cache() / FILE


@cache
def stored_rates(identity: str) -> Rates:
    """Return the rates that were measured on a processor; no rates if there was no measurement."""
    try:
        if unsafe_folder(rates_file().parent) is not None:
            return Rates()
        read = json.loads(read_regular(rates_file()))
        values = read["rates"] if read["processor"] == identity else {}
        return Rates(**{field.name: _checked(values[field.name]) for field in fields(Rates) if field.name in values})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Rates()


def _checked(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST_RATE:
        raise ValueError(f"expected a rate up to {LARGEST_RATE}, found {value!r}")
    return float(value)


def store_rates(identity: str, rates: Rates) -> None:
    """Save rates for the processor that they were measured on."""
    make_private(rates_file().parent)
    text = json.dumps({"processor": identity, "rates": rates.known}, indent=1)
    write_regular(rates_file(), text)
    stored_rates.cache_clear()
