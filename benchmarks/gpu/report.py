"""What was found on a GPU, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .unit import Kit, Unit

Row = Mapping[str, Any]


def one_line(unit: Unit, row: Row) -> str:
    """Format a finished unit while others are still running."""
    words = [f"{unit.group}/{unit.name}: {row['status']}"]
    if row.get("checks"):
        words.append(f"{row['checks']} checks, error {row['error']:.1e}")
    if "us" in row:
        words.append(f"{row['us']:.1f} us")
    words += [f"{row[name]:.1f} {unit_}" for name, unit_ in (("tflops", "TFLOP/s"), ("gbytes", "GB/s")) if name in row]
    if "ratio" in row:
        words.append(f"{row['peer']} {row['peer_us']:.1f} us, ratio {row['ratio']:.2f}")
    if row["status"] != "ok":
        words.append(reason(row)[:300])
    return ", ".join(words)


def reason(row: Row) -> str:
    """Return why a unit is not right."""
    if row.get("wrong"):
        first = row["wrong"][0]
        why = first.get("why") or f"error {first['error']:.2e}, at most {first['bound']:.0e} is allowed"
        more = f"; {len(row['wrong']) - 1} more" if len(row["wrong"]) > 1 else ""
        return f"{first['name']}: {why}{more}"
    output = [line for line in row.get("output", ()) if line]
    return " ".join([str(row.get("detail", "")), *output[-1:]])


def markdown(kit: Kit, results: Mapping[str, Any]) -> str:
    """Everything that was found."""
    device, rows = results["device"], results["units"]
    pairs = [(unit, rows[unit.name]) for unit in kit.units if unit.name in rows]
    copied = next((row["gbytes"] for unit, row in pairs if unit.group == "copy" and "gbytes" in row), 0.0)
    lines = [f"# {kit.target} on {device.get('name', 'a GPU')}, {results['date']}", ""]
    versions = [f"{name} {version}" for name, version in device.get("versions", {}).items() if version]
    copies = f" Copies {copied:.0f} GB/s (read and written)." if copied else ""
    lines += [f"Compiled on {kit.made}; {', '.join(versions)}.{copies}", ""]
    lines += _summary(pairs)
    lines += _times(pairs, copied)
    lines += _problems(pairs)
    return "\n".join(lines) + "\n"


def _summary(pairs: list[tuple[Unit, Row]]) -> list[str]:
    lines = ["| group | units | checks | right | largest error |", "| --- | --- | --- | --- | --- |"]
    for group in dict.fromkeys(unit.group for unit, _ in pairs):
        rows = [row for unit, row in pairs if unit.group == group]
        right = sum(row["status"] == "ok" for row in rows)
        checks = sum(row.get("checks", 0) for row in rows)
        worst = max((row.get("error", 0.0) for row in rows), default=0.0)
        lines.append(f"| {group} | {len(rows)} | {checks} | {right} | {worst:.1e} |")
    return [*lines, ""]


def _times(pairs: list[tuple[Unit, Row]], copied: float) -> list[str]:
    timed = [(unit, row) for unit, row in pairs if "us" in row]
    if not timed:
        return []
    lines = ["| unit | us | TFLOP/s | GB/s | of copies | others, us | ratio |", "|" + " --- |" * 7]
    for unit, row in timed:
        share = f"{row['gbytes'] / copied:.2f}" if copied and "gbytes" in row and not unit.flops else "-"
        cells = [unit.name, f"{row['us']:.1f}", *(f"{row[k]:.1f}" if k in row else "-" for k in ("tflops", "gbytes"))]
        others = ", ".join(f"{name} {us:.1f}" for name, us in row.get("peers", {}).items())
        peer = [others, f"{row['ratio']:.2f}"] if "ratio" in row else ["-", "-"]
        lines.append(f"| {' | '.join([*cells, share, *peer])} |")
    return [*lines, "", "Ratio: the time of the fastest other to ours.", ""]


def _problems(pairs: list[tuple[Unit, Row]]) -> list[str]:
    bad = [(unit, row) for unit, row in pairs if row["status"] != "ok"]
    if not bad:
        return []
    lines = ["## Not right", ""]
    for unit, row in bad:
        lines.append(f"- {unit.group}/{unit.name}: {row['status']}: {reason(row)}")
        lines += [f"  - {line}" for line in row.get("findings", ())[:6]]
        lines += [f"  - {other['name']}: {other['error']:.2e}" for other in row.get("wrong", ())[1:12]]
    return lines
