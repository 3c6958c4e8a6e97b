"""Whether the first tree has secrets, of any view: a server that would send them in clear over the network does not start."""

from __future__ import annotations

from collections.abc import Mapping

from fsxds.model.errors import UsageError
from fsxds.publishing.node_channels import NodeChannels, ViewLoading
from fsxds.publishing.publisher import Publisher
from fsxds.runtime.access import SECRET


async def reject_exposed_secrets(
    exposed: Mapping[str, str], publisher: Publisher, channels: NodeChannels, loading: ViewLoading
) -> None:
    """Check that the first tree has no secret. Views are loaded for this; those that nobody asks for are dropped again.

    Args:
        exposed: the addresses that other machines can read, by transport.
        publisher: has the tree.
        channels: knows all views.
        loading: loads them.

    Raises:
        UsageError: it has one.
    """
    await publisher.until_received()
    wanted = {layers for _, layers in channels.views if not publisher.is_loaded(layers)}
    for layers in wanted:
        loading.want(layers)
    while not all(map(publisher.is_loaded, wanted)):
        await publisher.published.replaced()
    snapshots = (publisher.published.current or {}).values()
    secrets = (secret for snapshot in snapshots for secret in snapshot.resources(SECRET).values())
    # Those of upstreams, which have no line, come and go: a restart would fail by what an upstream sent meanwhile. They are
    # kept from other machines as others that come later, by who asks (`runtime/access.py`).
    origins = [secret.origin for secret in secrets if secret.origin.line]
    for layers in wanted - {key.layers for key in publisher.rollouts}:
        loading.drop(layers)
    if origins:
        where = " and ".join(f"{name} at {address}" for name, address in exposed.items())
        fact = f"{origins[0]}: is a secret, and other machines can reach {where} without TLS"
        remedy = "give --tls-cert and --tls-key, a loopback address or unix:PATH, or allow it with --insecure-secrets"
        raise UsageError(f"{fact}; {remedy}")
