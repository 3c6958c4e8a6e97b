"""What Envoy would refuse: rules over messages, by what they mean, and the book that explains every rule."""
