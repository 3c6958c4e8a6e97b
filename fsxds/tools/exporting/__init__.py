"""Exports a view as files for any web server."""
