"""Tuning: search over the choices that a target declares for a kernel; the best are stored in a database."""
