"""Entities as clients see them."""
