"""Run-time parts that the server, transports and upstreams share."""
