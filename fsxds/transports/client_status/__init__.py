"""The Client Status Discovery Service, by REST and gRPC."""
