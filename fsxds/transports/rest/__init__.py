"""Serve snapshots by REST long poll."""
