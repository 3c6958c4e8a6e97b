"""Determines what the API expects at a position.

It uses the path's keys and the `@type`s beside them, so a document may be incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePosixPath

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, LIST_VALUE, SPECIAL_JSON, STRUCT, VALUE, fields_by_name, is_map, map_parts
from fsxds.editor.outline import Form, OutlineNode, Trail
from fsxds.lint.extensions import extension_facts
from fsxds.model.resource_types import BY_MESSAGE_TYPE, RESOURCE_TYPES, ResourceType, type_from_path
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.snapshots.layer_documents import KIND, PATCH, TYPE_WORDS
from fsxds.snapshots.references import NAMING_FIELDS, TYPED_STRUCTS
from fsxds.snapshots.shape import DISCOVERY_RESPONSE, RESOURCE_WRAPPER, is_envelope, is_wrapper
from fsxds.tools.packed_places import PackedTypes, Place

_FREE = frozenset({STRUCT, VALUE, LIST_VALUE})
_PER_ROUTE = ".typed_per_filter_config"
_FILTER_CONFIG = "envoy.config.route.v3.FilterConfig"
_HTTP_FILTERS = "envoy.filters.http"
_EXTENSION = "envoy.config.core.v3.TypedExtensionConfig"


class Role(Enum):
    """The expected kind."""

    DOCUMENT = "the top of a document"
    RESOURCES = "a list of resources"
    ELEMENT = "a resource of unknown type"
    MESSAGE = "a message"
    LIST = "a list"
    MAP = "a map"
    SCALAR = "a value"
    ANY = "a message of any type, without its @type"
    TYPE_URL = "the URL of a type"
    LAYER = "the patches and deletions of a layer"
    PATCHES = "patches by types"
    PATCHES_OF_TYPE = "patches by names"
    FREE = "any value"


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected value.

    Attributes:
        field: holds the value.
        row: the type of the resource, or of those in it.
        place: of an extension, which determines the types that fit.
        types: that fit an Any without a `place`.
        is_packed: a message with an `@type`.
    """

    role: Role
    descriptor: Descriptor | None = None
    field: FieldDescriptor | None = None
    row: ResourceType | None = None
    place: Place = ()
    types: tuple[str, ...] = ()
    is_packed: bool = False

    @property
    def extension_place(self) -> Place:
        """An extension's place; empty for its content."""
        return () if self.is_packed and self.row is None else self.place

    @property
    def is_resource(self) -> bool:
        """Whether it is a whole resource."""
        return self.role is Role.MESSAGE and self.row is not None


class ApiPlaces:
    """Determines expectations in one file."""

    def __init__(self, catalogue: Catalogue, path: PurePosixPath) -> None:
        self._catalogue = catalogue
        self._hint = type_from_path(path)
        self._facts = extension_facts()
        self._packed = catalogue.once(PackedTypes)

    def along(self, trail: Trail) -> tuple[Expectation, ...]:
        """Return the document's and each step's expectations."""
        expected = self.settled(Expectation(Role.DOCUMENT, row=self._hint), trail.root)
        found = [expected]
        for step in trail.steps:
            expected = self.settled(self.within(expected, step.holder, step.key), step.value)
            found.append(expected)
        return tuple(found)

    def settled(self, expected: Expectation, node: OutlineNode | None) -> Expectation:
        """Refine an expectation by the actual value."""
        form = node.form if node is not None else None
        if expected.role is Role.LIST and form is not Form.SEQUENCE and form is not None:
            # Envoy takes one value for a list of one.
            return self.settled(self.element_of(expected), node)
        if expected.role is Role.RESOURCES and form is Form.MAPPING:
            return self.settled(replace(expected, role=Role.ELEMENT), node)
        if expected.role in (Role.DOCUMENT, Role.ELEMENT):
            if form is Form.SEQUENCE and expected.role is Role.DOCUMENT:
                return replace(expected, role=Role.RESOURCES)
            return self._object(expected, node) if node is not None and form is Form.MAPPING else expected
        if expected.role is Role.ANY and node is not None:
            message = self._typed(node)
            return replace(expected, role=Role.MESSAGE, descriptor=message, is_packed=True) if message else expected
        return expected

    def element_of(self, expected: Expectation) -> Expectation:
        """Return the expectation of elements."""
        if expected.role is Role.RESOURCES:
            return replace(expected, role=Role.ELEMENT)
        return self._one(expected.field, expected) if expected.field is not None else Expectation(Role.FREE)

    def in_field(self, field: FieldDescriptor, holder: Expectation) -> Expectation:
        """Return the expectation in a field."""
        # The holder of an extension has its place, until the message within is reached.
        is_content = field.message_type is not None and field.message_type.full_name == ANY
        place = self._packed.place_of(field, holder.extension_place if is_content else ())
        expected = Expectation(Role.FREE, field=field, place=place)
        if is_map(field):
            return replace(expected, role=Role.MAP, types=self._packed_in(field))
        return replace(expected, role=Role.LIST) if field.is_repeated else self._one(field, expected)

    def resource_types(self) -> tuple[str, ...]:
        """Return the resource types, the file name's first."""
        known = [row for row in RESOURCE_TYPES if self._catalogue.knows(row.message_type)]
        return tuple(row.message_type for row in sorted(known, key=lambda row: row is not self._hint))

    def _object(self, expected: Expectation, node: OutlineNode) -> Expectation:
        is_layer = expected.role is Role.DOCUMENT and node.text_of("kind") == KIND
        return Expectation(Role.LAYER) if is_layer else self._element(expected, node)

    def _element(self, expected: Expectation, node: OutlineNode) -> Expectation:
        shallow: dict[str, PlainValue] = {
            member.key: node.text_of(member.key) for member in node.members if member.has_colon
        }
        if shallow and is_envelope(shallow):
            row = _row_of(node.text_of("type_url", "typeUrl")) or expected.row
            return Expectation(Role.MESSAGE, self._catalogue.descriptor(DISCOVERY_RESPONSE), types=_types(row))
        if is_wrapper(shallow):
            inner = node.member("resource")
            message = self._typed(inner.value) if inner is not None and inner.value is not None else None
            row = BY_MESSAGE_TYPE.get(message.full_name) if message is not None else expected.row
            return Expectation(Role.MESSAGE, self._catalogue.descriptor(RESOURCE_WRAPPER), types=_types(row))
        if "@type" in shallow:
            message = self._typed(node)
            row = BY_MESSAGE_TYPE.get(message.full_name) if message else None
            if message is None:
                return replace(expected, role=Role.ELEMENT)
            return Expectation(Role.MESSAGE, message, row=row, is_packed=True, place=self._place_of(row))
        row = expected.row
        if row is None or not self._catalogue.knows(row.message_type):
            return replace(expected, role=Role.ELEMENT)
        message = self._catalogue.descriptor(row.message_type)
        return Expectation(Role.MESSAGE, message, row=row, place=self._place_of(row))

    def _typed(self, node: OutlineNode) -> Descriptor | None:
        named = node.text_of("@type")
        return self._catalogue.descriptor(named.rpartition("/")[2]) if named else None

    def within(self, expected: Expectation, holder: OutlineNode, key: str | int) -> Expectation:
        """Return a member's or element's expectation."""
        if isinstance(key, int):
            return self.element_of(expected)
        if key == "@type" and expected.role in (Role.MESSAGE, Role.ANY, Role.ELEMENT, Role.DOCUMENT):
            return replace(expected, role=Role.TYPE_URL)
        if expected.role is Role.MAP and expected.field is not None:
            value = map_parts(expected.field)[1]
            return self._one(value, expected)
        if expected.role is not Role.MESSAGE or expected.descriptor is None:
            return self._in_layer(expected, key)
        return self._behind_key(expected, expected.descriptor, holder, key)

    def _in_layer(self, expected: Expectation, key: str) -> Expectation:
        if expected.role is Role.LAYER and key == PATCH:
            return Expectation(Role.PATCHES)
        if expected.role is Role.PATCHES and key in TYPE_WORDS:
            return Expectation(Role.PATCHES_OF_TYPE, row=TYPE_WORDS[key])
        if expected.role is Role.PATCHES_OF_TYPE and expected.row is not None:
            return Expectation(Role.MESSAGE, self._catalogue.descriptor(expected.row.message_type))
        return Expectation(Role.FREE)

    def _behind_key(self, expected: Expectation, message: Descriptor, holder: OutlineNode, key: str) -> Expectation:
        row = BY_MESSAGE_TYPE.get(expected.types[0]) if expected.types else None
        if message.full_name == DISCOVERY_RESPONSE and key == "resources":
            return Expectation(Role.RESOURCES, row=row)
        if message.full_name == DISCOVERY_RESPONSE and key in ("type_url", "typeUrl"):
            return Expectation(Role.TYPE_URL, row=row)
        if message.full_name == RESOURCE_WRAPPER and key == "resource":
            return Expectation(Role.ELEMENT, row=row)
        if message.full_name in TYPED_STRUCTS and key == "value":
            named = holder.text_of("type_url", "typeUrl")
            inner = self._catalogue.descriptor(named.rpartition("/")[2]) if named else None
            return Expectation(Role.MESSAGE, inner) if inner else Expectation(Role.FREE)
        if expected.is_packed and message.full_name in SPECIAL_JSON and key == "value":
            return Expectation(Role.FREE)
        field = fields_by_name(message).get(key)
        return Expectation(Role.FREE) if field is None else self.in_field(field, expected)

    def _one(self, field: FieldDescriptor, expected: Expectation) -> Expectation:
        message: Descriptor | None = field.message_type
        if message is None:
            return replace(expected, role=Role.SCALAR, field=field)
        if message.full_name == ANY:
            return replace(expected, role=Role.ANY, field=field)
        if message.full_name in _FREE:
            return replace(expected, role=Role.FREE, field=field)
        if message.full_name in SPECIAL_JSON:
            return replace(expected, role=Role.SCALAR, field=field)
        return replace(expected, role=Role.MESSAGE, descriptor=message, field=field)

    def _packed_in(self, field: FieldDescriptor) -> tuple[str, ...]:
        if not field.full_name.endswith(_PER_ROUTE):
            return ()
        of_filters = {*self._packed.types(_HTTP_FILTERS)} - self._facts.not_for_routes - self._facts.for_routes.keys()
        own = self._facts.for_routes.values()
        return tuple(one for one in (*sorted({*of_filters, *own}), _FILTER_CONFIG) if self._catalogue.knows(one))

    def _place_of(self, row: ResourceType | None) -> Place:
        is_extension = row is not None and row.message_type == _EXTENSION
        return self._packed.place_of_discovered() if is_extension else ()


def named_type(expected: Expectation) -> TypeUrl | None:
    """Return the type named by a value, or None."""
    return NAMING_FIELDS.get(expected.field.full_name) if expected.field is not None else None


def own_name_type(holder: Expectation, key: str | int) -> TypeUrl | None:
    """Return the type named at this key, also in a wrapper, or None."""
    message = holder.descriptor
    if message is None or not isinstance(key, str):
        return None
    if message.full_name == RESOURCE_WRAPPER:
        return BY_MESSAGE_TYPE[holder.types[0]].type_url if key == "name" and holder.types else None
    row = holder.row if holder.is_resource else None
    field = fields_by_name(message).get(key)
    is_name = row is not None and field is not None and field.name == row.name_field
    return row.type_url if is_name and row is not None else None


def _row_of(type_url: str | None) -> ResourceType | None:
    return BY_MESSAGE_TYPE.get(type_url.rpartition("/")[2]) if type_url else None


def _types(row: ResourceType | None) -> tuple[str, ...]:
    return (row.message_type,) if row is not None else ()
