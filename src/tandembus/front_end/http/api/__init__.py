"""The namespace as JSON, at `/$api/...`: what the dashboard speaks, and programs may."""
