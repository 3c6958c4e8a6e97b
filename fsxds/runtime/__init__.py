"""Shared by the server, its transports and upstreams at run time: current snapshots, channels and their clients, access."""
