"""Exports a view as files, for any web server to serve like HTTP GET."""
