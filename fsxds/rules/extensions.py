"""Extensions at the places where they are configured: whether one of this type can stand there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk
from fsxds.rules.extension_places import PLACES, Place
from fsxds.rules.extension_types import KNOWN, TYPES

TYPED_STRUCTS = ("xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct")

# Of these packages nothing is an extension by itself.
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
    "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction",
)
_RULE = "wrong-extension"
_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over extensions."""
    rules = ExtensionRules(catalogue)
    found: defaultdict[str, tuple[Hook, ...]] = defaultdict(tuple)
    for message_type, places in PLACES.items():
        for place in places:
            found[f"{message_type}.{place.field}"] += (rules.at(place),)
    found["envoy.config.listener.v3.Listener"] += (rules.check_listener_filters,)
    found["envoy.config.cluster.v3.Cluster.TransportSocketMatch"] += (_check_socket,)
    found["envoy.config.route.v3.ClusterSpecifierPlugin"] += (rules.check_plugin,)
    found["envoy.config.cluster.v3.LoadBalancingPolicy"] += (rules.check_policies,)
    found["envoy.config.core.v3.TypedExtensionConfig"] += (rules.check_discovered,)
    return dict(found)


class ExtensionRules:
    """Knows what a type URL stands for at each kind of place."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._structs: dict[str, type[Message]] = {
            name: catalogue.message_class(name) for name in TYPED_STRUCTS if catalogue.knows(name)
        }

    def at(self, place: Place) -> Hook:
        """Return the rule over the field of a place."""

        def check_list(extensions: Any, path: Path, walk: Walk) -> None:
            for index, extension in enumerate(extensions):
                self._check(extension, place.category, (path, index), walk)

        def check_one(extension: Any, path: Path, walk: Walk) -> None:
            self._check(extension, place.category, path, walk)

        return check_list if place.is_repeated else check_one

    def check_listener_filters(self, listener: Any, path: Path, walk: Walk) -> None:
        """Check the filters of a listener: those of UDP are others than those of TCP."""
        if not listener.listener_filters:
            return
        category = "envoy.filters.listener"
        if listener.address.socket_address.protocol == _UDP:
            if listener.udp_listener_config.HasField("quic_options"):
                return
            category = "envoy.filters.udp_listener"
        for index, extension in enumerate(listener.listener_filters):
            self._check(extension, category, ((path, "listener_filters"), index), walk)

    def check_plugin(self, plugin: Any, path: Path, walk: Walk) -> None:
        """Check a plugin that chooses clusters, unless it may be unknown."""
        if not plugin.is_optional:
            self._check(plugin.extension, "envoy.router.cluster_specifier_plugin", (path, "extension"), walk)

    def check_policies(self, policy: Any, path: Path, walk: Walk) -> None:
        """Check that Envoy will know one of the policies: it takes the first that it knows."""
        wrong = None
        for index, one in enumerate(policy.policies):
            if not one.HasField("typed_extension_config"):
                continue
            name = self._content_type(one.typed_extension_config.typed_config)
            if fits(name, ("envoy.load_balancing_policies",)):
                return
            wrong = index, name
        if wrong is not None and wrong[1]:
            place = ((((path, "policies"), wrong[0]), "typed_extension_config"), "typed_config")
            walk.tell(place, _RULE, f"{wrong[1]} is not a load balancing policy", "write a type that is")

    def check_discovered(self, extension: Any, path: Path, walk: Walk) -> None:
        """Check an extension that is served on its own: only filters are."""
        if path is None:
            categories = "envoy.filters.http envoy.filters.http.upstream envoy.filters.network envoy.filters.listener"
            more = "envoy.filters.udp.session envoy.filters.udp_listener"
            self._check(extension, f"{categories} {more}", None, walk)

    def _check(self, extension: Any, category: str, path: Path, walk: Walk) -> None:
        packed = extension.typed_config
        if packed.type_url:
            name = self._content_type(packed)
            if getattr(extension, "is_optional", False):
                return
            if not name:
                remedy = "write the type of the extension, with type.googleapis.com/ in front"
                walk.tell(((path, "typed_config"), "type_url"), _RULE, "says no type", remedy)
            elif not fits(name, category.split()):
                message = f"{name} cannot stand here: it is no extension of {' or '.join(category.split()[:2])}"
                walk.tell((path, "typed_config"), _RULE, message, _remedy(name, category.split()))
        elif extension.DESCRIPTOR.name == "TypedExtensionConfig" or _is_discovered(extension):
            return  # told by the field rules
        elif not getattr(extension, "is_optional", False):
            remedy = 'add typed_config, with the "@type" of the extension; Envoy does not go by the name'
            walk.tell((path, "typed_config"), _RULE, "is missing", remedy)

    def _content_type(self, packed: Any) -> str:
        """Return the type of what is in an Any, that of its content for a TypedStruct; "" for one that is not known."""
        name: str = packed.type_url.rpartition("/")[2]
        struct = self._structs.get(name)
        if struct is None:
            return name
        try:
            content: Any = struct.FromString(packed.value)
        except DecodeError:
            return name  # told elsewhere
        inner: str = content.type_url.rpartition("/")[2]
        return inner


def _check_socket(match: Any, path: Path, walk: Walk) -> None:
    if not match.HasField("transport_socket"):
        walk.tell((path, "transport_socket"), _RULE, "is missing", "say which transport socket a matching endpoint has")


def _is_discovered(extension: Any) -> bool:
    return any(field.name == "config_discovery" for field, _ in extension.ListFields())


def fits(name: str, categories: Iterable[str]) -> bool:
    """Tell whether a type may be an extension of these categories, as far as it is known at all."""
    if any(name in TYPES[category] for category in categories):
        return True
    return name not in KNOWN and not name.startswith(_PLAIN_PACKAGES)


def _remedy(name: str, categories: Iterable[str]) -> str:
    last = name.rpartition(".")[2]
    near = _opposite(last)
    for category in categories:
        for candidate in _sorted(category):
            if candidate.rpartition(".")[2] in {last, near}:
                return f"perhaps {candidate} is meant"
    return f"write one of its types, such as {next(_sorted(next(iter(categories))))}"


def _opposite(name: str) -> str:
    if "Downstream" in name:
        return name.replace("Downstream", "Upstream")
    return name.replace("Upstream", "Downstream")


def _sorted(category: str) -> Iterator[str]:
    return iter(sorted(TYPES[category]))
