"""The server's status as values, computed on request."""
