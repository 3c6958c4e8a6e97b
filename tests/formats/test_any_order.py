"""One order inside of every Any."""

from fsxds.formats.any_order import repack_in_order

METADATA = "envoy.config.core.v3.Metadata"


def packed(catalogue, names):
    """Return a resource wrapper around a typed extension around metadata whose map was filled in this order."""
    metadata = catalogue.message_class(METADATA)()
    for name in names:
        metadata.filter_metadata[name].fields["x"].bool_value = True
    extension = catalogue.message_class("envoy.config.core.v3.TypedExtensionConfig")(name="a")
    extension.typed_config.Pack(metadata)
    wrapper = catalogue.message_class("envoy.service.discovery.v3.Resource")(aliases=["b"])
    wrapper.resource.Pack(extension)
    return wrapper


def test_the_order_of_filling_does_not_matter(catalogue):
    """Two levels of Any become equal bytes."""
    names = [f"n{n}" for n in range(30)]
    one, other = packed(catalogue, names), packed(catalogue, list(reversed(names)))

    for message in (one, other):
        repack_in_order(message, catalogue)

    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def test_nothing_is_lost(catalogue):
    """The message stays equal."""
    message = packed(catalogue, ["a"])

    repack_in_order(message, catalogue)

    assert message == packed(catalogue, ["a"])


def test_values_of_maps_and_lists_are_looked_into(catalogue):
    """An Any may be the value of a map, or in a list; maps of scalars are left alone."""
    names = [f"n{n}" for n in range(30)]
    assignment = catalogue.message_class("envoy.config.endpoint.v3.ClusterLoadAssignment")
    cluster = catalogue.message_class("envoy.config.cluster.v3.Cluster")()
    cluster.typed_extension_protocol_options["a"].Pack(packed(catalogue, names))
    cluster.metadata.typed_filter_metadata["b"].Pack(packed(catalogue, list(reversed(names))))
    cluster.lb_subset_config.subset_selectors.add(keys=["c"])
    response = catalogue.message_class("envoy.service.discovery.v3.DiscoveryResponse")()
    response.resources.add().Pack(packed(catalogue, names))
    runtime = catalogue.message_class("envoy.data.accesslog.v3.HTTPRequestProperties")()
    runtime.request_headers["a"] = "b"

    for message in (cluster, response, runtime, assignment()):
        repack_in_order(message, catalogue)

    one = cluster.typed_extension_protocol_options["a"].value
    assert {one} == {cluster.metadata.typed_filter_metadata["b"].value, response.resources[0].value, one}


def test_unknown_types_stay(catalogue):
    """What is of an unknown type, or damaged, is not touched."""
    any_message = catalogue.message_class("google.protobuf.Any")
    for type_url in ("a/no.such.Type", f"type.googleapis.com/{METADATA}", "", "/"):
        message = any_message(type_url=type_url, value=b"\xff")

        repack_in_order(message, catalogue)

        assert message.value == b"\xff"
