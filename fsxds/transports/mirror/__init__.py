"""Keep a directory that Envoy's filesystem subscriptions watch in step with the snapshot."""
