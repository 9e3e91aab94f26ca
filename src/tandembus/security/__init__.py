"""Shared access signatures, claims and TLS."""
