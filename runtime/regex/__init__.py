"""Regular expressions with RE2's syntax and meaning, matched in time that is linear in the text.

`syntax.py` reads them, `nfa.py` makes automata of them, `automaton.py` runs these.
"""
