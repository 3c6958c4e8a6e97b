"""What the server, its transports and upstreams share while they run: what is current, who follows it, and what happens."""
