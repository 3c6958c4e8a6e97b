"""The API of one Envoy: its message types and features."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.descriptors import completed, parse_set
from fsxds.model.errors import ApiError

T = TypeVar("T")

DynamicMessage: TypeAlias = Any
"""A message of a type known only at runtime: mypy does not know its fields."""

Extensions = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The message types of each extension, by category and name."""


@dataclass(frozen=True, slots=True)
class Command:
    """The forms of a command in formats: `%NAME(parameters):length%`."""

    needs_parameters: bool
    takes_parameters: bool
    takes_length: bool


_FORMS = ("needs_parameters", "takes_parameters", "takes_length")


@dataclass(frozen=True)
class Features:
    """The features of a build of Envoy.

    Attributes:
        curves: the group of each curve name.
        terminal: whether a filter of a type ends its chain, if known.
        digest: SHA-256 of the executable, in hex.
        foreign: unreported message types of others.
        is_exact: this Envoy is in use; another may have more extensions.
    """

    version: str
    extensions: Extensions
    commands: Mapping[str, Command]
    curves: Mapping[str, str]
    ciphers: frozenset[str]
    terminal: Mapping[str, bool]
    digest: str
    foreign: frozenset[str] = frozenset()
    is_exact: bool = True

    @classmethod
    def of_json(cls, text: str | bytes) -> Features:
        """Read the output of `to_json`."""
        plain = json.loads(text)
        return cls(
            plain["version"],
            {
                category: {name: tuple(types) for name, types in named.items()}
                for category, named in plain["extensions"].items()
            },
            {name: Command(*(form in forms.split() for form in _FORMS)) for name, forms in plain["commands"].items()},
            plain["curves"],
            frozenset(plain["ciphers"]),
            plain["terminal"],
            plain["digest"],
        )

    def to_json(self) -> str:
        """Write one line per feature."""
        plain = {
            "version": self.version,
            "digest": self.digest,
            "extensions": {
                category: {name: list(types) for name, types in sorted(named.items())}
                for category, named in sorted(self.extensions.items())
            },
            "commands": {
                name: " ".join(form for form in _FORMS if getattr(command, form))
                for name, command in sorted(self.commands.items())
            },
            "curves": dict(sorted(self.curves.items())),
            "ciphers": sorted(self.ciphers),
            "terminal": dict(sorted(self.terminal.items())),
        }
        return json.dumps(plain, indent=1) + "\n"

    @cached_property
    def by_category(self) -> Mapping[str, frozenset[str]]:
        """Message types by category."""
        return {
            category: frozenset(one for types in named.values() for one in types)
            for category, named in self.extensions.items()
        }

    @cached_property
    def known(self) -> frozenset[str]:
        """Message types of all categories."""
        return frozenset().union(*self.by_category.values())

    def types(self, category: str) -> frozenset[str]:
        """Return a category's message types."""
        return self.by_category.get(category, frozenset())

    def names(self, category: str) -> frozenset[str]:
        """Return a category's extension names."""
        return frozenset(self.extensions.get(category, {}))

    @cached_property
    def minor_version(self) -> str:
        """Without its last part: `1.40`."""
        return ".".join(self.version.split(".")[:2])


class _WithOptions(Protocol):
    def GetOptions(self) -> Message:  # noqa: N802 - protobuf's name
        ...


class Catalogue:
    """One API's message types.

    Attributes:
        description: the origin, for users: `Envoy 1.40.0 from /usr/bin/envoy, 557 files`.
        features: None if unknown.
        pool: with extensions of options (`validate.rules`, `udpa.annotations.sensitive`).
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
        self._made: dict[object, object] = {}

    @classmethod
    def of(cls, serialized: bytes, description: str, features: Features | None = None) -> Catalogue:
        """Parse a FileDescriptorSet, in any order, and add well-known files.

        Raises:
            ApiError: it is no such set, or its files do not fit together.
        """
        pool = descriptor_pool.DescriptorPool()
        for file in completed(parse_set(serialized).file):
            try:
                pool.AddSerializedFile(file.SerializeToString())
            except (TypeError, ValueError) as error:
                raise ApiError(f"{file.name} does not fit the other proto files: {error}") from error
        return cls(pool, serialized, description, features)

    def once(self, make: Callable[[Catalogue], T]) -> T:
        """Call `make` once, and keep the result.

        Two threads may both call it at first; one result is dropped.
        """
        if make not in self._made:
            self._made.setdefault(make, make(self))
        return cast("T", self._made[make])

    def knows(self, message_type: str) -> bool:
        """Return whether a message type exists."""
        return self.descriptor(message_type) is not None

    def unpacked(self, packed: DynamicMessage) -> DynamicMessage | None:
        """Return an Any's content, or None."""
        if not self.knows(packed.type_url.rpartition("/")[2]):
            return None
        try:
            return self.read(packed.type_url, packed.value)
        except DecodeError:
            return None

    def descriptor(self, message_type: str) -> Descriptor | None:
        """Return a type's descriptor, or None."""
        try:
            return self.pool.FindMessageTypeByName(message_type)
        except (KeyError, TypeError):  # TypeError: the name is no whole Unicode
            return None

    def message_class(self, message_type: str) -> type[Message]:
        """Return a type's class; KeyError if unknown."""
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(message_type))

    def read(self, type_url: str, body: bytes) -> DynamicMessage:
        """Parse a message, by type URL or type. Raises KeyError or DecodeError."""
        return self.message_class(type_url.rpartition("/")[2]).FromString(body)

    def options_of(self, described: _WithOptions) -> DynamicMessage:
        """Return a descriptor's options.

        Those of `GetOptions()`, of protobuf's default pool, lack this pool's extensions.
        """
        options = described.GetOptions()
        return self.read(options.DESCRIPTOR.full_name, options.SerializeToString())

    def extension(self, name: str) -> FieldDescriptor | None:
        """Return an extension of options, or None."""
        try:
            return self.pool.FindExtensionByName(name)
        except KeyError:
            return None

    def descriptors(self) -> Iterator[Descriptor]:
        """Yield all types, also of maps' entries."""
        for proto in parse_set(self.serialized).file:
            file: FileDescriptor = self.pool.FindFileByName(proto.name)
            waiting = list(file.message_types_by_name.values())
            while waiting:
                descriptor = waiting.pop()
                yield descriptor
                waiting.extend(descriptor.nested_types)

    def knows_word(self, name: str) -> bool:
        """Whether a field, in either case, or enum value exists."""
        return name in self.once(_words)

    def similar(self, message_type: str) -> str | None:
        """Return the type probably meant."""
        names = self.once(_names)
        package, _, last_part = message_type.rpartition(".")
        namesakes = [name for name in names if name.endswith(f".{last_part}")]
        # Comparing a name with all others takes 10 ms, and a broken file may have thousands of them.
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
