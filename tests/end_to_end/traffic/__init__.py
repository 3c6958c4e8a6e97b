"""Requests through a real Envoy while the tree behind it changes: `python -m tests.end_to_end.traffic`."""
