"""Events: what happens, one class each, with its line in the log and its metrics."""
