"""Rates of this processor: how they are measured, kept and used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirlo.targets.llvm import machine, measure, options
from mirlo.targets.llvm.cpus import CPUS
from mirlo.targets.llvm.machine import Rates, rates_file, store_rates, stored_rates
from mirlo.targets.llvm.options import described_machine, host_identity, host_machine, machine_of
from mirlo.targets.llvm.processor import Processor, host_processor

REMEMBERED = (stored_rates, host_machine, options.parse_options)


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(machine, "user_cache", lambda: tmp_path / "mirlo")
    for remembered in REMEMBERED:
        remembered.cache_clear()
    yield
    for remembered in REMEMBERED:
        remembered.cache_clear()


@pytest.mark.usefixtures("_folder")
def test_machines_have_the_rates_that_were_measured() -> None:
    assert host_machine() == described_machine()
    host_machine.cache_clear()
    options.parse_options.cache_clear()
    store_rates(host_identity(), Rates(l3_bytes_per_cycle=7.1, bf16_dot_rate=0.25))
    machine = host_machine()
    assert (machine.l3_bytes_per_cycle, machine.bf16_dot_rate) == (7.1, 0.25)
    assert machine.l2_bytes_per_cycle == described_machine().l2_bytes_per_cycle
    assert options.parse_options("cpu=native threads=2").machine == machine
    other = options.parse_options("cpu=znver3")
    assert other.machine == machine_of(other.processor, CPUS["znver3"])


@pytest.mark.usefixtures("_folder")
def test_rates_of_another_processor_are_not_used() -> None:
    store_rates("another", Rates(l3_bytes_per_cycle=7.1))
    assert stored_rates("this one") == Rates()
    assert stored_rates("another") == Rates(l3_bytes_per_cycle=7.1)


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"processor": "p"}', '{"processor": "p", "rates": 3}']
    + [
        json.dumps({"processor": "p", "rates": {"l2_bytes_per_cycle": value}})
        for value in (0, -1, 1e9, "fast", None, [], True)
    ],
)
def test_damaged_files_are_no_rates(text: str) -> None:
    store_rates("p", Rates(l2_bytes_per_cycle=40.0))
    rates_file().write_text(text)
    stored_rates.cache_clear()
    assert stored_rates("p") == Rates()


@pytest.mark.parametrize("cpu", ["host", "x86-64-v3", "x86-64"])
def test_all_rates_are_measured(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loop runs once, which executes all of its code but measures no rate."""
    host = host_processor()
    features = CPUS[cpu].features if cpu != "host" else frozenset(host.features)
    if not features <= set(host.features):
        pytest.skip(f"this processor does not run code for {cpu}")
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    processor = host if cpu == "host" else Processor(host.triple, cpu, tuple(sorted(features)))
    found = measure.measure(processor, described_machine() if cpu == "host" else machine_of(processor))
    assert found.known
    assert all(value > 0 for value in found.known.values())
    assert (found.fma_per_cycle is not None) == processor.has_fma
