"""Events of fsxds, one class for each kind, with its line in the log and its metrics."""
