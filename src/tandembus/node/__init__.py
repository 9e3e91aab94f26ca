"""Putting a running namespace together."""
