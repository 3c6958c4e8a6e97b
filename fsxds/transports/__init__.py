"""Transports: each package serves current snapshots in one way."""
