"""Serve snapshots by gRPC: state of the world and Delta, of one type and aggregated."""
