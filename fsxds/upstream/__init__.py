"""Upstreams: other xDS servers as sources.

Clients need a relay: Envoy asks a second server only if the first never answered, gRPC clients only for missing
resources (ENVOY.md E83, E84).
"""
