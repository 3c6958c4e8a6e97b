"""Upstreams: other xDS servers as sources of resources.

Clients need a relay for this: Envoy asks a second server only if the first has never answered, and gRPC clients only
for resources that they do not have (ENVOY.md E83, E84).
"""
