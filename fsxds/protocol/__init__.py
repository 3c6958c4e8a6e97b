"""xDS rules without I/O: values in, values out."""
