"""A descriptor pool and its message classes, wherever they came from."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumValueDescriptor, FieldDescriptor, FileDescriptor, OneofDescriptor
from google.protobuf.message import Message

from fsxds.api.descriptors import completed, parse_set
from fsxds.api.features import Features
from fsxds.errors import ApiError

T = TypeVar("T")


class Catalogue:
    """All message types of one API, in a pool of their own.

    Attributes:
        description: where the API came from, for people: `Envoy 1.40.0 from /usr/bin/envoy, 557 files`.
        serialized: the FileDescriptorSet it was made of; with the description it makes an equal catalogue elsewhere.
        features: what else the Envoy has whose API this is; None where nothing is known of that.
        pool: the descriptors. Extensions of options (`validate.rules`, `udpa.annotations.sensitive`) are in it.
    """

    def __init__(
        self,
        pool: descriptor_pool.DescriptorPool,
        serialized: bytes,
        description: str,
        features: Features | None = None,
    ) -> None:
        self.pool = pool
        self.features = features
        self.serialized = serialized
        self.description = description
        self._field_options = self.message_class("google.protobuf.FieldOptions")
        self._message_options = self.message_class("google.protobuf.MessageOptions")
        self._oneof_options = self.message_class("google.protobuf.OneofOptions")
        self._enum_value_options = self.message_class("google.protobuf.EnumValueOptions")
        self._made: dict[object, object] = {}

    @classmethod
    def of(cls, serialized: bytes, description: str, features: Features | None = None) -> Catalogue:
        """Make a catalogue of a serialized FileDescriptorSet, its files in any order.

        The well-known files of `google/protobuf/` that it lacks are added.

        Raises:
            ApiError: when the bytes are no such set, or its files do not fit together.
        """
        pool = descriptor_pool.DescriptorPool()
        for file in completed(parse_set(serialized).file):
            try:
                pool.AddSerializedFile(file.SerializeToString())
            except (TypeError, ValueError) as error:
                raise ApiError(f"{file.name} does not fit the other proto files: {error}") from error
        return cls(pool, serialized, description, features)

    def once(self, make: Callable[[Catalogue], T]) -> T:
        """Return what `make` makes of this catalogue; it is asked once, and what it made is kept as long as the catalogue.

        Two threads may both ask it at first; what one of them made is then dropped.
        """
        if make not in self._made:
            self._made.setdefault(make, make(self))
        return cast("T", self._made[make])

    def knows(self, message_type: str) -> bool:
        """Tell whether there is a message type of this full name."""
        return self.descriptor(message_type) is not None

    def descriptor(self, message_type: str) -> Descriptor | None:
        """Return the descriptor of a message type, None for an unknown one."""
        try:
            return self.pool.FindMessageTypeByName(message_type)
        except (KeyError, TypeError):  # TypeError: the name is no whole Unicode
            return None

    def message_class(self, message_type: str) -> type[Message]:
        """Return the class of a message type; KeyError for an unknown one."""
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(message_type))

    def field_options(self, field: FieldDescriptor) -> Message:
        """Return a field's options as this pool's own FieldOptions, so that this pool's extensions can be read from them.

        `field.GetOptions()` is a message of protobuf's default pool, which does not know these extensions.
        """
        return self._field_options.FromString(field.GetOptions().SerializeToString())

    def message_options(self, descriptor: Descriptor) -> Message:
        """Return the options of a message type as this pool's own, as `field_options` does for fields."""
        return self._message_options.FromString(descriptor.GetOptions().SerializeToString())

    def oneof_options(self, oneof: OneofDescriptor) -> Message:
        """Return the options of a oneof as this pool's own."""
        return self._oneof_options.FromString(oneof.GetOptions().SerializeToString())

    def enum_value_options(self, value: EnumValueDescriptor) -> Message:
        """Return the options of a value of an enum as this pool's own."""
        return self._enum_value_options.FromString(value.GetOptions().SerializeToString())

    def extension(self, name: str) -> FieldDescriptor | None:
        """Return an extension of options by its full name, None where the API lacks it."""
        try:
            return self.pool.FindExtensionByName(name)
        except KeyError:
            return None

    def descriptors(self) -> Iterator[Descriptor]:
        """Yield all message types, those of maps' entries too."""
        for proto in parse_set(self.serialized).file:
            file: FileDescriptor = self.pool.FindFileByName(proto.name)
            waiting = list(file.message_types_by_name.values())
            while waiting:
                descriptor = waiting.pop()
                yield descriptor
                waiting.extend(descriptor.nested_types)

    def knows_word(self, name: str) -> bool:
        """Tell whether any message has a field of this name, in snake_case or camelCase, or any enum such a value."""
        return name in self.once(_words)

    def similar(self, message_type: str) -> str | None:
        """Return the known type that an unknown name probably means, None when nothing is near."""
        names = self.once(_names)
        package, _, last_part = message_type.rpartition(".")
        namesakes = [name for name in names if name.endswith(f".{last_part}")]
        # To compare a name with all others takes 10 ms, and a broken file may have thousands of them.
        candidates = namesakes or [name for name in names if name.startswith(f"{package}.")]
        near = difflib.get_close_matches(message_type, candidates, n=1, cutoff=0.6)
        return near[0] if near else None


def _names(catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(sorted(descriptor.full_name for descriptor in catalogue.descriptors()))


def _words(catalogue: Catalogue) -> frozenset[str]:
    fields = [field for descriptor in catalogue.descriptors() for field in descriptor.fields]
    enums = {field.enum_type.full_name: field.enum_type for field in fields if field.enum_type is not None}
    spellings = (spelling for field in fields for spelling in (field.name, field.json_name))
    return frozenset((*spellings, *(value for enum in enums.values() for value in enum.values_by_name)))
