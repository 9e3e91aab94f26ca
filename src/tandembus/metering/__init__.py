"""Counts what is billable."""
