"""A local Envoy: bootstrap, process, and status."""
