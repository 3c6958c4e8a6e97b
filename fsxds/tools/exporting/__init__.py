"""Exports a view of a tree as files, for any web server to serve under the paths of HTTP GET."""
