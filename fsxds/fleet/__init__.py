"""A fleet: servers that serve the same content, agree by way of etcd, and publish one after the other."""
