"""The Client Status Discovery Service (CSDS), by REST and gRPC."""
