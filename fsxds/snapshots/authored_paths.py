"""The API's path of a field, as the author of a document spelled it."""

from __future__ import annotations

from fsxds.values import FieldPath, PlainValue


def authored_path(value: PlainValue, field_path: FieldPath) -> FieldPath:
    """Return the path by which a value of an author's document is found.

    Authors may write `connectTimeout`, and one object where a list is due. Steps that lead to nothing, such as a field that
    is missing, stay as they are.

    Args:
        value: what the author wrote at the top of the path.
        field_path: fields in snake_case, indexes and keys of maps.
    """
    steps: list[str | int] = []
    for number, step in enumerate(field_path):
        if isinstance(step, int):
            if not isinstance(value, list):
                continue
            if step >= len(value):
                return (*steps, *field_path[number:])
            value = value[step]
            steps.append(step)
            continue
        key = _key_of(value, step)
        if key is None or not isinstance(value, dict):
            return (*steps, *field_path[number:])
        value = value[key]
        steps.append(key)
    return tuple(steps)


def _key_of(value: PlainValue, step: str) -> str | None:
    if not isinstance(value, dict):
        return None
    if step in value:
        return step
    first, *others = step.split("_")
    camel = first + "".join(word.capitalize() for word in others)
    return camel if camel in value else None
