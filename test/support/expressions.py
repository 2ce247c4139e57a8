"""Random regular expressions of RE2's syntax, right and wrong ones, and texts for them."""

from __future__ import annotations

import random

ATOMS = (
    "a", "b", "c", "ab", " ", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[a-c]", "[^a]", r"[^\w]",
    "[[:alpha:]]", "[[:^digit:]_]", "[]a]", "[a-]", "[-a]", r"[\d-z]", r"\pL", r"\PN", r"\p{Greek}", r"\p{^Lu}",
    r"\pZ", r"[\pL\d]", "é", "ß", "K", "s", r"\x41", r"\x{3b1}", r"\101", r"\0", r"\.", r"\_", r"\n", "^", "$", r"\A",
    r"\z", r"\b", r"\B", "()", r"\Qa.b\E", r"\Q*\E", "{", "}", "{1", "{,2}", "]", "(?i)", "(?m)", "(?s)", "(?-i)",
    "(?U)", r"\p{Han}", r"[^\pL]", "[[:word:]]", r"\1", r"\8", r"\Z", "[b-a]", "(?P<n>a)", "(?<m>b)",
    r"[\x{100}-\x{2ff}]", "[α-ω]", r"\-", r"\é", "[[:x:]]", r"\E", r"[a\]]", r"[^\n]", r"\t", "(?=a)", "(?i:k)",
    "(?s:.)", "(?m:^)", "(?m:$)", "[[:", r"\p{Lu", r"\p{Nothing}", "(?P=n)", "(?<=a)", r"\G", "(?i:[k-m])", "(?i:ß|σ)",
)  # fmt: skip
GROUPS = ("", "?:", "?i:", "?m:", "?s:", "?ims:", "?i-s:", "?P<x>", "?-:", "?:?", "?")
OPERATORS = (
    "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "{0}", "{3,1}", "{01}", "{1001}", "*?", "+?", "??", "{2}?", "{40}",
    "{,2}", "**", "{1,", "{2}{3}",
)  # fmt: skip
LETTERS = "abcABkKsS019_ .\n\tßéſKαΩςω漢-*{}]x"
ASCII = "abcABkKsS019_ .\n\t-*{}]x"


def draw_expression(generator: random.Random, depth: int = 0) -> str:
    """Return an expression, half of which are right."""
    kind = generator.random()
    if depth > 4 or kind < 0.4:
        return generator.choice(ATOMS)
    inner = draw_expression(generator, depth + 1)
    if kind < 0.6:
        return inner + draw_expression(generator, depth + 1)
    if kind < 0.7:
        return f"{inner}|{draw_expression(generator, depth + 1)}"
    if kind < 0.82:
        return f"({generator.choice(GROUPS)}{inner})"
    return inner + generator.choice(OPERATORS)


def draw_text(generator: random.Random, expression: str) -> str:
    r"""Return a text; of ASCII for `\B`, which RE2 finds in the middle of letters that have several bytes."""
    letters = ASCII if r"\B" in expression else LETTERS
    return "".join(generator.choice(letters) for _ in range(generator.choice([0, 1, 2, 3, 5, 8])))
