"""Events of fsxds, one class per kind, with log lines and metrics."""
