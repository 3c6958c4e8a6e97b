"""What a decoder found, without the types that a test knows better."""

from fsxds.formats.positions import locate_all


def locate(content, document, field_path):
    """Return the place of one path in YAML or JSON."""
    return locate_all(content, ((document, field_path),))[document, field_path]


def values_of(decoded):
    """Return the values of plain documents."""
    return [document.value for document in decoded.documents]


def messages_of(decoded):
    """Return the messages of message documents."""
    return [document.message for document in decoded.documents]
