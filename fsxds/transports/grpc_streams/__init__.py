"""The gRPC transport: SotW and Delta streams, for one type and aggregated."""
