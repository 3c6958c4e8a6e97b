"""What a decoder found, without the types that a test knows better."""


def values_of(decoded):
    """Return the values of plain documents."""
    return [document.value for document in decoded.documents]


def messages_of(decoded):
    """Return the messages of message documents."""
    return [document.message for document in decoded.documents]
