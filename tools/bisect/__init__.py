"""Bisection of a wrong model: the first node and pass that depart from an oracle, and a bundle to reproduce it."""
