"""A view of a tree as files that any web server can serve under the paths of HTTP GET."""
