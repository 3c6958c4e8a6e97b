"""Tools beside the server."""
