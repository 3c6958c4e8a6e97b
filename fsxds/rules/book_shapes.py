"""The book's chapter on resources as they are written: their shape, their types, their names and their fields."""

from __future__ import annotations

from fsxds.rules.rule import Rule
from fsxds.values import Severity

_CLUSTER = "- name: web\n  type: STATIC\n  connect_timeout: 1s\n"

_ECHO = """\
  filter_chains:
  - filters:
    - name: echo
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}
"""

RULES: tuple[Rule, ...] = (
    Rule(
        "unknown-field",
        Severity.ERROR,
        "Every field is one that the API of the Envoy in use has, in snake_case or camelCase.",
        "In dynamic resources Envoy leaves an unknown field out, with a line in its log and a counter; a typo then means "
        "that a default is used. With --reject-unknown-dynamic-fields, and in text format, it refuses the resource.",
        "Correct the name, or remove the field. `--unknown-fields warn` leaves them out as Envoy does.",
        "- name: web\n  type: STATIC\n  conect_timeout: 1s\n",
        _CLUSTER,
        is_fixed=True,
    ),
    Rule(
        "unknown-enum-value",
        Severity.ERROR,
        "The value of an enum field is one of the enum's names, in any case of letters, or its number.",
        "Envoy treats an unknown name as an unknown field: it leaves it out, and the default is used.",
        "Write one of the names; the message tells which are near.",
        "- name: web\n  type: STATIC\n  lb_policy: ROUND_ROBBIN\n",
        "- name: web\n  type: STATIC\n  lb_policy: ROUND_ROBIN\n",
        is_fixed=True,
    ),
    Rule(
        "wrong-value",
        Severity.ERROR,
        "A value has the form that its field asks for: a number, a text, true or false, a list, an object, a duration.",
        "Envoy refuses the whole answer that the resource is in.",
        "Write the value in the form that the message names.",
        "- name: web\n  type: STATIC\n  connect_timeout: soon\n",
        _CLUSTER,
        is_fixed=True,
    ),
    Rule(
        "null-item",
        Severity.WARNING,
        "The items of a list have values: null is none.",
        "Envoy takes null for an empty item: an empty text, a zero, or a message without fields.",
        "Remove it, or write the item.",
        "- name: web\n  type: STATIC\n  lb_subset_config: {subset_selectors: [{keys: [stage, null]}]}\n",
        "- name: web\n  type: STATIC\n  lb_subset_config: {subset_selectors: [{keys: [stage]}]}\n",
    ),
    Rule(
        "nested-list",
        Severity.WARNING,
        "A list of a field is one list, not a list of lists.",
        "Envoy takes what is in an inner list for items of the list around it.",
        "Remove the inner brackets.",
        "- name: web\n  type: STATIC\n  lb_subset_config: {subset_selectors: [{keys: [stage, [zone]]}]}\n",
        "- name: web\n  type: STATIC\n  lb_subset_config: {subset_selectors: [{keys: [stage, zone]}]}\n",
    ),
    Rule(
        "duplicate-field",
        Severity.ERROR,
        "A field is given once, in one spelling.",
        "Envoy takes one of the two without a word, or refuses the resource.",
        "Remove one of them.",
        "- name: web\n  type: STATIC\n  connect_timeout: 1s\n  connectTimeout: 5s\n",
        "- name: web\n  type: STATIC\n  connect_timeout: 5s\n",
        is_fixed=True,
    ),
    Rule(
        "oneof-conflict",
        Severity.ERROR,
        "Of fields that exclude each other, one is given.",
        "Envoy refuses the whole answer that the resource is in.",
        "Remove one of them.",
        "- name: web\n  type: STATIC\n  cluster_type: {name: envoy.cluster.static}\n",
        "- name: web\n  type: STATIC\n",
        is_fixed=True,
    ),
    Rule(
        "missing-type",
        Severity.ERROR,
        'Every resource has a type that is told by its "@type", by its envelope\'s type_url, or by the name of its file or '
        'folder; every extension has an "@type".',
        "Envoy refuses an extension without a type. It does not see a resource of which fsxds does not know the type.",
        'Add "@type": type.googleapis.com/ and the full name of the message, or name the file after its type.',
        "- name: web\n  type: STATIC\n",
        '- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: web\n  type: STATIC\n',
        is_fixed=True,
        file="edge.yaml",
    ),
    Rule(
        "unknown-type",
        Severity.ERROR,
        "Every message type that is named exists in the API of the Envoy in use.",
        "Envoy refuses the whole answer: it could not find the type.",
        "Correct the name; or give the Envoy in use by --envoy, or your own types by --descriptors.",
        '"@type": type.googleapis.com/envoy.config.cluster.v3.Clutser\nname: web\ntype: STATIC\n',
        '"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: web\ntype: STATIC\n',
        is_fixed=True,
    ),
    Rule(
        "not-a-resource",
        Severity.ERROR,
        "What is served is one of the types that xDS serves: clusters, endpoints, listeners, routes and so on.",
        "No Envoy can ask for it.",
        "Put it into the resource that it belongs to.",
        '"@type": type.googleapis.com/envoy.config.core.v3.Address\nsocket_address: {address: 127.0.0.1, port_value: 80}\n',
        _CLUSTER,
        is_fixed=True,
    ),
    Rule(
        "broken-message",
        Severity.ERROR,
        "Bytes in an Any are a serialized message of the type that it names.",
        "Envoy refuses the resource.",
        "Write the file again with what made it.",
        'resources {\n  type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster"\n  value: "\\377\\377"\n}\n',
        "resources {\n  [type.googleapis.com/envoy.config.cluster.v3.Cluster] {\n"
        '    name: "web"\n    type: STATIC\n  }\n}\n',
        is_fixed=True,
        file="cds.textproto",
    ),
    Rule(
        "no-resources",
        Severity.ERROR,
        "An envelope says which resources it has; an empty list is written as one.",
        "Envoy takes `resources:` without a value as: delete everything of this type. It reports that as a success.",
        "Write the resources, or `resources: []` to serve none on purpose.",
        'version_info: "1"\nresources:\n',
        'version_info: "1"\nresources: []\n',
        is_fixed=True,
    ),
    Rule(
        "no-resource",
        Severity.ERROR,
        "A `Resource` has something in its field `resource`.",
        "Envoy makes a cluster without a name and without endpoints of it, and refuses it for listeners.",
        "Add `resource:` with its content, or remove it.",
        '- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource\n  name: web\n',
        '- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource\n  name: web\n'
        '  resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: web, type: STATIC}\n',
        is_fixed=True,
    ),
    Rule(
        "missing-name",
        Severity.ERROR,
        "Every resource has a name; for endpoints it is cluster_name. A LbEndpoint has it in the `Resource` around it. One "
        "listener may be without.",
        "Envoy refuses clusters and endpoints without a name, and two such listeners; nothing can refer to others.",
        "Name the resource.",
        "- type: STATIC\n",
        "- name: web\n  type: STATIC\n",
        is_fixed=True,
    ),
    Rule(
        "unnamed-listener",
        Severity.NOTE,
        "A listener has a name. fsxds serves one without it by the name of the `Resource` around it, or by one that it makes "
        "of its address, so that it stays the same.",
        "Envoy accepts one, and refuses two. By itself it would give it a random name in each response that holds it, and so "
        "replace it, and drain its connections, with every update of any listener.",
        "Name the listener.",
        "- address: {socket_address: {address: 127.0.0.1, port_value: 10000}}\n" + _ECHO,
        "- name: edge\n  address: {socket_address: {address: 127.0.0.1, port_value: 10000}}\n" + _ECHO,
        file="lds.yaml",
    ),
    Rule(
        "name-mismatch",
        Severity.ERROR,
        "A `Resource` and what it holds have one name.",
        "Envoy adds the cluster and deletes it again at once, and reports a success.",
        "Make the two names equal, or leave the name of the Resource out.",
        "- name: web\n"
        '  resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: api, type: STATIC}\n',
        "- name: web\n"
        '  resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: web, type: STATIC}\n',
        is_fixed=True,
    ),
    Rule(
        "duplicate-name",
        Severity.ERROR,
        "A name stands once in a type, over all files. Equal copies within one file are a warning where Envoy asks for "
        "resources one by one. Of virtual hosts that are served on their own, `VirtualHost.name` stands once in a route "
        "configuration as well.",
        "Envoy refuses clusters or listeners in which a name stands twice, after it applied the others. Of two virtual hosts "
        "it keeps the one that came last; requests for the other hang.",
        "Rename or remove one of the two.",
        "- name: web\n  type: STATIC\n  connect_timeout: 1s\n- name: web\n  type: STATIC\n  connect_timeout: 5s\n",
        "- name: web\n  type: STATIC\n  connect_timeout: 1s\n- name: api\n  type: STATIC\n  connect_timeout: 5s\n",
        is_fixed=True,
    ),
    Rule(
        "no-version",
        Severity.ERROR,
        "With `--versions authored`, every file has a version_info.",
        "It is sent what the file held last.",
        "Add a version_info, or serve with `--versions content`.",
        "resources:\n- name: web\n  type: STATIC\n",
        'version_info: "1"\nresources:\n- name: web\n  type: STATIC\n',
        is_fixed=True,
        file="",
    ),
    Rule(
        "version-conflict",
        Severity.ERROR,
        "With `--versions authored`, all files of a type have one version_info: an answer carries a single one.",
        "It is sent what the file held last.",
        "Give all files of a type one version, or serve with `--versions content`.",
        'version_info: "2"  # and "1" in another file of clusters\nresources: []\n',
        'version_info: "1"\nresources: []\n',
        is_fixed=True,
        file="",
    ),
    Rule(
        "stale-version",
        Severity.ERROR,
        "With `--versions authored`, new content has a new version_info.",
        "An Envoy that has the version already would not be told of the change.",
        "Give new content a new version, or serve with `--versions content`.",
        'version_info: "1"  # as before the change\nresources: []\n',
        'version_info: "2"\nresources: []\n',
        is_fixed=True,
        file="",
    ),
)
