"""Choices of resources as bootstraps."""

from __future__ import annotations

from collections.abc import Collection

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.envoy.static_bootstrap import Renderer
from tests.envoy.judged import resources_of

TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
SECRETS = "resources: [{name: s, validation_context: {trusted_ca: {inline_string: a}}}]"
CLUSTERS = f"""\
resources:
- {{name: a}}
- name: b
  transport_socket:
    name: tls
    typed_config:
      "@type": {TLS}
      common_tls_context: {{validation_context_sds_secret_config: {{name: s, sds_config: {{ads: {{}}}}}}}}
"""
ROUTES = """\
resources:
- name: r
  virtual_hosts: [{name: a, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: a}}]}]
- name: strict
  validate_clusters: true
"""


def renderer(catalogue: Catalogue) -> Renderer:
    """Return a renderer of a secret (0), two clusters (1, 2), and two routes (3, 4)."""
    files = {"sds": SECRETS, "cds": CLUSTERS, "rds": ROUTES}
    made = [one for short_name, text in files.items() for one in resources_of(short_name, text, catalogue)]
    return Renderer(catalogue, made, "/folder")


def text_of(members: Collection[int], catalogue: Catalogue) -> str:
    """Render some of them as text."""
    return str(Printer(catalogue).to_plain(renderer(catalogue).render(members).bootstrap.static_resources))


def test_chosen_secrets_are_static(catalogue: Catalogue) -> None:
    """A secret stands in its user where both are chosen; else its user asks a server, which nobody is."""
    assert "'validation_context_sds_secret_config': {'name': 'fsxds-stand-in/s'}}" in text_of((0, 2), catalogue)
    assert "'ads'" not in text_of((2,), catalogue)
    assert "'sds_config': {'api_config_source'" in text_of((2,), catalogue)


def test_every_part_is_known(catalogue: Catalogue) -> None:
    """Each part of a bootstrap stands for its resource, and what was made up for none."""
    rendering = renderer(catalogue).render((0, 1, 2, 3))

    assert [0] == rendering.secrets
    assert {"fsxds-stand-in-0": 0, "fsxds-stand-in": None, "a": 1, "b": 2} == rendering.clusters
    assert {"fsxds-stand-in-3": 3} == rendering.listeners


def test_what_is_mentioned_is_there(catalogue: Catalogue) -> None:
    """A cluster that a route names is there without endpoints, unless it is chosen too."""
    assert {"fsxds-stand-in", "a"} == set(renderer(catalogue).render((3,)).clusters)


def test_routes_do_not_check_clusters_by_themselves(catalogue: Catalogue) -> None:
    """A route table checks its clusters as one that is served: only where it says so."""
    assert "'validate_clusters': False" in text_of((3,), catalogue)
    assert "'validate_clusters': True" in text_of((4,), catalogue)
