"""The HTTP front end: administration, health and live figures."""
