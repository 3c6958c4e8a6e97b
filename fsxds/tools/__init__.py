"""Tools beside the server: diff, convert, doctor, schema, and the client behind `watch`."""
