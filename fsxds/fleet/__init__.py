"""A fleet: servers that share content through etcd, and have one publisher."""
