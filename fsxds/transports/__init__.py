"""Transports: each package serves current snapshots to clients in one way."""
