"""Parts that server, transports and upstreams share."""
