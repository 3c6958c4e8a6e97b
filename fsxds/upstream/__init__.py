"""Other xDS servers as sources: what they are asked for, what each of them holds, and what they are told of it.

Clients need this in front of them: Envoy asks a second server only as long as the first has never answered, and clients of gRPC
only for what they do not hold (ENVOY.md E83, E84).
"""
