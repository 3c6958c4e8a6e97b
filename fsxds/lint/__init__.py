"""The linter: configuration that Envoy rejects or misuses."""
