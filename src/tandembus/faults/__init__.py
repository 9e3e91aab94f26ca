"""Faults that people inject on purpose, to see what an outage does to their applications. See docs/faults.md."""
