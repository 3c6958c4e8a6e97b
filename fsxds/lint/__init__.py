"""The linter: what Envoy would reject or would not use as meant, with a page for every rule; reports of what is found."""
