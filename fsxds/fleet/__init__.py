"""A fleet: servers that serve the same content, coordinate through etcd, and have one publisher."""
