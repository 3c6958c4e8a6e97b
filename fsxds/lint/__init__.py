"""The linter: configuration that Envoy rejects or misuses, with a page per rule, and reports."""
