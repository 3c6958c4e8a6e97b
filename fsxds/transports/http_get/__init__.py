"""HTTP GET: each resource at a URL of its own, with an entity tag, in the format and the coding that a client takes."""
