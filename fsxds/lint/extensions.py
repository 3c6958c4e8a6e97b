"""Extensions: types allowed in each place, and routes' settings of filters.

`extension_facts.json` was found by asking Envoy 1.40. Types by category come from the Envoy in use (`Features`).
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import FieldValue
from fsxds.api.walk import Hook, Hooks, Leave, Path, Walk, field_path_of, merge_hooks
from fsxds.lint.field_values import looks_up_names, packed_type
from fsxds.lint.rules import chapters
from fsxds.model.values import Fault, FieldPath
from fsxds.snapshots.references import TYPED_STRUCTS

_COMPOSITE = "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction"
# Types of these packages are not extensions by themselves, in any Envoy.
_PLAIN_PACKAGES = (
    "google.protobuf.",
    "envoy.config.core.",
    "envoy.config.route.",
    "envoy.config.cluster.",
    "envoy.config.listener.",
    "envoy.config.endpoint.",
    "envoy.config.rbac.",
    "envoy.data.",
    "envoy.service.",
    "envoy.type.",
    "envoy.extensions.matching.",
    "envoy.extensions.transport_sockets.tls.v3.",
    "envoy.extensions.filters.common.matcher.action.",
    _COMPOSITE,
)
_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol
_WRAPPER = "envoy.config.route.v3.FilterConfig"
_HTTP_FILTERS = ("envoy.filters.http",)
_HOLDERS = (
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.route.v3.VirtualHost",
    "envoy.config.route.v3.Route",
    "envoy.config.route.v3.WeightedCluster.ClusterWeight",
)


@dataclass(frozen=True, slots=True)
class ExtensionFacts:
    """The content of `extension_facts.json`.

    Attributes:
        extension_points: per field with named extensions, the allowed categories, separated by spaces.
        looked_up_by_name: fields in which Envoy finds the extension by name, not by type.
        without_structs: fields in which Envoy does not unpack a TypedStruct.
        for_routes: filter types' types for routes, if any. Envoy finds the filter by either, and then reads the content as
            the required one, unless it is empty.
        is_terminal: whether a filter that needs settings ends its chain.
    """

    extension_points: Mapping[str, str]
    looked_up_by_name: frozenset[str]
    packed: Mapping[str, str]
    without_structs: frozenset[str]
    for_routes: Mapping[str, str]
    not_for_routes: frozenset[str]
    is_terminal: Mapping[str, bool]


@cache
def extension_facts() -> ExtensionFacts:
    """Read the file, once."""
    read = json.loads((files("fsxds") / "lint" / "extension_facts.json").read_text(encoding="utf-8"))
    return ExtensionFacts(
        read["extension_points"],
        frozenset(read["looked_up_by_name"]),
        read["packed"],
        frozenset(read["without_structs"]),
        read["for_routes"],
        frozenset(read["not_for_routes"]),
        dict.fromkeys(read["terminal_filters"], True) | dict.fromkeys(read["other_filters"], False),
    )


def hooks(catalogue: Catalogue) -> Hooks:
    """Check extensions and routes' settings."""
    facts, extensions, routes = extension_facts(), _ExtensionChecks(catalogue), _RouteChecks(catalogue)
    return merge_hooks(
        {
            field: (extensions.at(categories, is_named=field in facts.looked_up_by_name),)
            for field, categories in facts.extension_points.items()
        },
        {field: (extensions.packed(category),) for field, category in facts.packed.items()},
        dict.fromkeys(facts.without_structs, (_check_struct,)),
        {
            "envoy.config.listener.v3.Listener": (extensions.check_listener_filters,),
            "envoy.config.route.v3.ClusterSpecifierPlugin": (extensions.check_plugin,),
            "envoy.config.cluster.v3.Cluster": (extensions.check_dns_resolver,),
            "envoy.config.cluster.v3.LoadBalancingPolicy": (extensions.check_policies,),
            "envoy.config.core.v3.TypedExtensionConfig": (extensions.check_discovered,),
            "envoy.config.core.v3.GrpcService": (_forget_retries,),
            f"{_COMPOSITE}.typed_config": (extensions.check_delegate,),
        },
        dict.fromkeys(_HOLDERS, (routes.enter_holder,)),
        {
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter": (routes.check_filter,),
            _WRAPPER: (routes.enter_wrapper,),
        },
    )


class ExtensionTypes:
    """Extension types by category."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._features = catalogue.features

    def fits(self, name: str, categories: Iterable[str]) -> bool:
        """Whether it fits these categories."""
        features = self._features
        if features is None or any(name in features.types(category) for category in categories):
            return True
        if name in features.known:
            return False
        is_open = name in TYPED_STRUCTS or name in features.foreign or ".v3alpha." in name
        if is_open or not self._catalogue.knows(name):
            return True
        # Another Envoy than the known one may have this type.
        return not features.is_exact and not name.startswith(_PLAIN_PACKAGES)

    def is_http_filter(self, name: str) -> bool:
        """True if unknown, too."""
        return self._features is None or name in self._features.types(_HTTP_FILTERS[0])

    def remedy(self, name: str, categories: Iterable[str]) -> str:
        """Return the probable type for `name`."""
        last = name.rpartition(".")[2]
        near = (
            last.replace("Downstream", "Upstream") if "Downstream" in last else last.replace("Upstream", "Downstream")
        )
        types = [one for category in categories for one in sorted(self.of(category))]
        for candidate in types:
            if candidate.rpartition(".")[2] in {last, near}:
                return f"perhaps {candidate} is meant"
        return f"write one of its types, such as {types[0]}" if types else "remove it: this Envoy has no such extension"

    def name_fault(self, name: str, message_type: str, category: str) -> str | None:
        """Return the fault of a looked-up name, or None."""
        named = self._features.extensions.get(category, {}) if self._features is not None else {}
        if not named:
            return None
        if name not in named:
            return f'Envoy goes by the name here, and has no extension "{name}" among {", ".join(sorted(named))}'
        if message_type and message_type not in named[name]:
            return f'Envoy goes by the name here, and "{name}" is configured by {" or ".join(named[name])}'
        return None

    def content_type(self, packed: DynamicMessage) -> str:
        """Return an Any's type, or its TypedStruct's, or ""."""
        name = packed_type(packed)
        content = self._catalogue.unpacked(packed) if name in TYPED_STRUCTS else None
        return name if content is None else packed_type(content)  # a broken one is reported where it is read

    def of(self, category: str) -> frozenset[str]:
        """Return a category's types; empty if unknown."""
        return self._features.types(category) if self._features is not None else frozenset()


class _ExtensionChecks:
    def __init__(self, catalogue: Catalogue) -> None:
        self._types = ExtensionTypes(catalogue)

    def at(self, categories: str, *, is_named: bool) -> Hook:

        def check(held: FieldValue, path: Path, walk: Walk) -> None:
            if not isinstance(held, Message):
                for index, extension in enumerate(held):
                    self._check(extension, categories, (path, index), walk)
                return
            self._check(held, categories, path, walk)
            if is_named:
                one: DynamicMessage = held
                content = self._types.content_type(one.typed_config)
                fault = self._types.name_fault(one.name, content, categories)
                if fault is not None:
                    walk.error((path, "name"), "wrong-extension", fault, "write one of these names")

        return check

    def packed(self, category: str) -> Hook:

        def check_packed(packed: DynamicMessage, path: Path, walk: Walk) -> None:
            if name := self._types.content_type(packed):
                self._check_type(name, category, path, walk)

        return check_packed

    def _check_type(self, name: str, category: str, path: Path, walk: Walk) -> None:
        categories = category.split()
        if not self._types.fits(name, categories):
            message = f"{name} cannot be used here: it is no extension of {' or '.join(categories[:2])}"
            walk.error(path, "wrong-extension", message, self._types.remedy(name, categories))

    def check_listener_filters(self, listener: DynamicMessage, path: Path, walk: Walk) -> None:
        """UDP has others than TCP."""
        if not listener.listener_filters:
            return
        category = "envoy.filters.listener"
        if listener.address.socket_address.protocol == _UDP:
            if listener.udp_listener_config.HasField("quic_options"):
                return
            category = "envoy.filters.udp_listener"
        for index, extension in enumerate(listener.listener_filters):
            self._check(extension, category, ((path, "listener_filters"), index), walk)

    def check_dns_resolver(self, cluster: DynamicMessage, path: Path, walk: Walk) -> None:
        """Unless no names are resolved."""
        if looks_up_names(cluster) and cluster.HasField("typed_dns_resolver_config"):
            place = (path, "typed_dns_resolver_config")
            self._check(cluster.typed_dns_resolver_config, "envoy.network.dns_resolver", place, walk)

    def check_plugin(self, plugin: DynamicMessage, path: Path, walk: Walk) -> None:
        if not plugin.is_optional:
            self._check(plugin.extension, "envoy.router.cluster_specifier_plugin", (path, "extension"), walk)

    def check_policies(self, policy: DynamicMessage, path: Path, walk: Walk) -> Leave | None:
        """Envoy takes the first known one."""
        wrong = None
        for index, one in enumerate(policy.policies):
            if not one.HasField("typed_extension_config"):
                continue
            name = self._types.content_type(one.typed_extension_config.typed_config)
            if self._types.fits(name, ("envoy.load_balancing_policies",)):
                return walk.forgetting(partial(_is_after, index, field_path_of((path, "policies"))))
            wrong = index, name
        if wrong is not None and wrong[1]:
            place = ((((path, "policies"), wrong[0]), "typed_extension_config"), "typed_config")
            walk.error(place, "wrong-extension", f"{wrong[1]} is not a load balancing policy", "write a type that is")
        return None

    def check_delegate(self, extension: DynamicMessage, path: Path, walk: Walk) -> None:
        """A filter within a composite one is towards a client or an upstream."""
        walk.depend_on_place()
        steps = field_path_of(path)
        if {"typed_extension_protocol_options", "upstream_http_filters"}.intersection(steps):
            self._check(extension, "envoy.filters.http.upstream", path, walk)
        elif "http_filters" in steps:
            self._check(extension, "envoy.filters.http", path, walk)

    def check_discovered(self, extension: DynamicMessage, path: Path, walk: Walk) -> None:
        """Only filters are served on their own."""
        if path is None:
            categories = "envoy.filters.http envoy.filters.http.upstream envoy.filters.network envoy.filters.listener"
            more = "envoy.filters.udp.session envoy.filters.udp_listener"
            self._check(extension, f"{categories} {more}", None, walk)

    def _check(self, extension: DynamicMessage, category: str, path: Path, walk: Walk) -> None:
        packed = extension.typed_config
        if packed.type_url:
            name = self._types.content_type(packed)
            if getattr(extension, "is_optional", False):
                return
            if not name:
                remedy = "write the type of the extension, with type.googleapis.com/ in front"
                walk.error(((path, "typed_config"), "type_url"), "wrong-extension", "names no type", remedy)
            else:
                self._check_type(name, category, (path, "typed_config"), walk)
        elif any(field.name == "config_discovery" for field, _ in extension.ListFields()):
            for index, type_url in enumerate(extension.config_discovery.type_urls):
                place: Path = (((path, "config_discovery"), "type_urls"), index)
                self._check_type(type_url.rpartition("/")[2], category, place, walk)
        elif extension.DESCRIPTOR.name in {"TypedExtensionConfig", "RequestIDExtension"}:
            return  # reported by the field rules, or unnecessary for Envoy
        elif not getattr(extension, "is_optional", False):
            remedy = 'add typed_config, with the "@type" of the extension; Envoy does not go by the name'
            walk.error((path, "typed_config"), "wrong-extension", "is missing", remedy)


def _is_after(last: int, items: FieldPath, fault: Fault) -> bool:
    return fault.field_path[: len(items)] == items and fault.field_path[len(items) :][:1] > (last,)


def _check_struct(held: FieldValue, path: Path, walk: Walk) -> None:
    """Only Envoy knows the types: of an Any, an extension, or a list."""
    extensions = enumerate(held) if not isinstance(held, Message) else ((None, held),)
    for index, extension in extensions:
        packed = getattr(extension, "typed_config", extension)
        if packed_type(packed) in TYPED_STRUCTS:
            place = path if index is None else (path, index)
            remedy = "write the message itself"
            walk.error(place, "wrong-extension", "Envoy does not look into a TypedStruct here", remedy)


def _forget_retries(_: DynamicMessage, path: Path, walk: Walk) -> Leave:
    """Most gRPC clients create the extensions of retries never, or only when they call."""
    start = len(field_path_of(path))
    return walk.forgetting(lambda fault: fault.rule == "wrong-extension" and "retry_policy" in fault.field_path[start:])


@cache
def _constraints() -> frozenset[str]:
    return frozenset(rule.name for rule in chapters()["constraints"].rules)


class _RouteChecks:
    def __init__(self, catalogue: Catalogue) -> None:
        self._types = ExtensionTypes(catalogue)
        self._facts = extension_facts()
        self._for_filters = {of_routes: own for own, of_routes in self._facts.for_routes.items()}
        self._catalogue = catalogue

    def enter_holder(self, holder: DynamicMessage, path: Path, walk: Walk) -> Leave | None:
        if not holder.typed_per_filter_config:
            return None
        place, unread = (path, "typed_per_filter_config"), set()
        for name in sorted(holder.typed_per_filter_config):
            packed = holder.typed_per_filter_config[name]
            if self._is_read_otherwise(packed):
                unread.add(name)
            if packed_type(packed) != _WRAPPER:
                self._check_settings(packed, (place, name), walk)
            elif (wrapper := self._catalogue.unpacked(packed)) is not None:
                self._check_wrapper(wrapper, (place, name), walk)
        return self._leaving_out(holder, unread, place, walk) if unread else None

    def _is_read_otherwise(self, packed: DynamicMessage) -> bool:
        """Envoy reads empty settings as those for routes."""
        return packed_type(packed) in self._facts.for_routes and not packed.value

    def _leaving_out(self, holder: DynamicMessage, names: Container[str], place: Path, walk: Walk) -> Leave:
        start = field_path_of(place)
        forget = walk.forgetting(
            lambda fault: fault.field_path[: len(start)] == start and fault.field_path[len(start)] in names
        )

        def leave() -> None:
            forget()
            for name in sorted(holder.typed_per_filter_config):
                if name in names:
                    self._enter_empty(holder.typed_per_filter_config[name], (place, name), walk)

        return leave

    def _enter_empty(self, packed: DynamicMessage, path: Path, walk: Walk) -> None:
        name = self._facts.for_routes[packed_type(packed)]
        if self._catalogue.knows(name):
            walk.enter(self._catalogue.message_class(name)(), path)

    def enter_wrapper(self, wrapper: DynamicMessage, path: Path, walk: Walk) -> Leave | None:
        """Envoy does not read an unknown filter's optional settings."""
        name = packed_type(wrapper.config)
        if self._is_read_otherwise(wrapper.config):
            forget = walk.forgetting(lambda _: True)

            def leave() -> None:
                forget()
                self._enter_empty(wrapper.config, (path, "config"), walk)

            return leave
        if not wrapper.is_optional:
            return None
        if not self._types.is_http_filter(name):
            return walk.forgetting(lambda _: True)
        if name in self._facts.not_for_routes:
            return walk.forgetting(lambda fault: fault.rule not in _constraints())
        return None

    def _check_wrapper(self, wrapper: DynamicMessage, path: Path, walk: Walk) -> None:
        if not wrapper.HasField("config"):
            if not wrapper.disabled:
                message = "configures nothing of the filter"
                walk.error(path, "wrong-extension", message, "add config, or disabled: true")
        elif not wrapper.is_optional or packed_type(wrapper.config) in self._facts.for_routes:
            self._check_settings(wrapper.config, (path, "config"), walk)

    def _check_settings(self, packed: DynamicMessage, path: Path, walk: Walk) -> None:
        name = self._types.content_type(packed)
        if not name and path is not None and path[1] != "config":
            remedy = 'add "@type" and the settings, or remove it'
            walk.error(path, "wrong-extension", "configures nothing of the filter", remedy)
        elif name in self._facts.not_for_routes:
            remedy = "remove it, or write FilterConfig with disabled"
            walk.error(path, "wrong-extension", f"a route cannot configure {name}", remedy)
        elif name in self._facts.for_routes:
            if packed.value and packed_type(packed) == name:
                remedy = f"write {self._facts.for_routes[name]}"
                walk.error(path, "wrong-extension", f"{name} is for the filter, not for routes", remedy)
        elif name == _WRAPPER or (name and not self._types.fits(name, _HTTP_FILTERS)):
            message = f"{name} is not for HTTP filters" if name != _WRAPPER else "a FilterConfig is in no other message"
            walk.error(path, "wrong-extension", message, "write the type that a filter has for routes")

    def check_filter(self, http_filter: DynamicMessage, path: Path, walk: Walk) -> Leave | None:
        """It must not be for routes; Envoy does not read an optional one of another kind."""
        packed = http_filter.typed_config
        name = packed_type(packed)
        if http_filter.is_optional and not self._types.is_http_filter(name):
            return walk.forgetting(lambda fault: fault.rule in _constraints())
        if packed.value and name in self._for_filters:
            message = f"{name} is for routes, not for the filter"
            walk.error((path, "typed_config"), "wrong-extension", message, f"write {self._for_filters[name]}")
        return None
