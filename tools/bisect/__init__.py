"""Bisection of a wrong model: the first node and the first pass that depart from an oracle, and a bundle to
reproduce it."""
