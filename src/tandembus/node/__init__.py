"""Wiring: the only place that picks concrete classes."""
