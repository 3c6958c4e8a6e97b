"""The mirror: a directory, watched by Envoy's filesystem subscriptions, that follows the snapshots."""
