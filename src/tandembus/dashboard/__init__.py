"""The dashboard: static files that speak the HTTP API and nothing else. Served by `front_end/http`."""
