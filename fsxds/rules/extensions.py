"""Extensions at the places where they are configured: whether one of this type can stand there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk
from fsxds.rules.extension_places import PACKED, PLACES, Place

TYPED_STRUCTS = ("xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct")

# Of these packages nothing is an extension by itself, in whatever Envoy.
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
_DNS_TYPES = (1, 2)  # STRICT_DNS, LOGICAL_DNS
_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over extensions."""
    rules = ExtensionRules(catalogue)
    found: defaultdict[str, tuple[Hook, ...]] = defaultdict(tuple)
    for message_type, places in PLACES.items():
        for place in places:
            found[f"{message_type}.{place.field}"] += (rules.at(place),)
    for holder, category in PACKED.items():
        found[holder] += (rules.packed(category),)
    found["envoy.config.listener.v3.Listener"] += (rules.check_listener_filters,)
    found["envoy.config.cluster.v3.Cluster.TransportSocketMatch"] += (_check_socket,)
    found["envoy.config.route.v3.ClusterSpecifierPlugin"] += (rules.check_plugin,)
    found["envoy.config.cluster.v3.Cluster"] += (rules.check_dns_resolver,)
    found["envoy.config.cluster.v3.LoadBalancingPolicy"] += (rules.check_policies,)
    found["envoy.config.core.v3.TypedExtensionConfig"] += (rules.check_discovered,)
    return dict(found)


class ExtensionTypes:
    """Knows which message types are extensions of which categories, as far as that is known at all."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._features = catalogue.features

    def fits(self, name: str, categories: Iterable[str]) -> bool:
        """Tell whether a type may be an extension of these categories."""
        features = self._features
        if features is None or any(name in features.types(category) for category in categories):
            return True
        if name in features.known:
            return False
        is_open = name in TYPED_STRUCTS or name in features.foreign or ".v3alpha." in name
        if is_open or not self._catalogue.knows(name):
            return True
        # Another Envoy than the one that is known may have this one.
        return not features.is_exact and not name.startswith(_PLAIN_PACKAGES)

    def is_of(self, name: str, category: str) -> bool:
        """Tell whether a type is an extension of a category; True where nothing is known of that."""
        return self._features is None or name in self._features.types(category)

    def remedy(self, name: str, categories: Iterable[str]) -> str:
        """Say which type is probably meant where `name` does not fit."""
        last = name.rpartition(".")[2]
        near = _opposite(last)
        types = [one for category in categories for one in sorted(self._of(category))]
        for candidate in types:
            if candidate.rpartition(".")[2] in {last, near}:
                return f"perhaps {candidate} is meant"
        return f"write one of its types, such as {types[0]}" if types else "remove it: this Envoy has none"

    def name_fault(self, name: str, message_type: str, category: str) -> str | None:
        """Tell what is wrong with an extension that Envoy looks up by its name."""
        named = self._features.extensions.get(category, {}) if self._features is not None else {}
        if not named:
            return None
        if name not in named:
            return f'Envoy goes by the name here, and has no extension "{name}" among {", ".join(sorted(named))}'
        if message_type and message_type not in named[name]:
            return f'Envoy goes by the name here, and "{name}" is configured by {" or ".join(named[name])}'
        return None

    def _of(self, category: str) -> frozenset[str]:
        return self._features.types(category) if self._features is not None else frozenset()


class ExtensionRules:
    """Knows what a type URL stands for at each kind of place."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._types = ExtensionTypes(catalogue)
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
            if not place.is_named:
                return
            content = self._content_type(extension.typed_config)
            fault = self._types.name_fault(extension.name, content, place.category)
            if fault is not None:
                walk.tell((path, "name"), _RULE, fault, "write one of these names")

        return check_list if place.is_repeated else check_one

    def packed(self, category: str) -> Hook:
        """Return the rule over a field that holds an extension without a name."""

        def check_packed(packed: Any, path: Path, walk: Walk) -> None:
            name = self._content_type(packed)
            if name and not self._types.fits(name, (category,)):
                message = f"{name} cannot stand here: it is no extension of {category}"
                walk.tell(path, _RULE, message, self._types.remedy(name, (category,)))

        return check_packed

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

    def check_dns_resolver(self, cluster: Any, path: Path, walk: Walk) -> None:
        """Check the resolver of a cluster; one that looks up no names does not look at it."""
        if cluster.type in _DNS_TYPES and cluster.HasField("typed_dns_resolver_config"):
            place = (path, "typed_dns_resolver_config")
            self._check(cluster.typed_dns_resolver_config, "envoy.network.dns_resolver", place, walk)

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
            if self._types.fits(name, ("envoy.load_balancing_policies",)):
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
            elif not self._types.fits(name, category.split()):
                message = f"{name} cannot stand here: it is no extension of {' or '.join(category.split()[:2])}"
                walk.tell((path, "typed_config"), _RULE, message, self._types.remedy(name, category.split()))
        elif extension.DESCRIPTOR.name in {"TypedExtensionConfig", "RequestIDExtension"} or _is_discovered(extension):
            return  # told by the field rules, or nothing that Envoy needs
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


def _opposite(name: str) -> str:
    if "Downstream" in name:
        return name.replace("Downstream", "Upstream")
    return name.replace("Upstream", "Downstream")
