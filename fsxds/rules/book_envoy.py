"""The book's chapter on what a real Envoy says: `fsxds check --with-envoy`."""

from __future__ import annotations

from fsxds.rules.rule import Rule
from fsxds.values import Severity

RULES: tuple[Rule, ...] = (
    Rule(
        "envoy-rejects",
        Severity.ERROR,
        "A real Envoy, asked by check, takes every resource of the tree. It is asked in its validation mode, with the "
        "resources as static configuration and with stand-ins for files of other machines; the message is its own.",
        "It refuses the resource, or the whole answer that the resource is in; what was refused in creating something may "
        "be applied in part (ENVOY.md A4).",
        "Change what the message names. Where it names another resource too, the two cannot be there at once: change one.",
        "- name: web\n  type: STATIC\n  ring_hash_lb_config: {minimum_ring_size: 5, maximum_ring_size: 3}\n"
        "  lb_policy: RING_HASH\n",
        "- name: web\n  type: STATIC\n  ring_hash_lb_config: {minimum_ring_size: 3, maximum_ring_size: 5}\n"
        "  lb_policy: RING_HASH\n",
        file="",
    ),
    Rule(
        "envoy-undecided",
        Severity.NOTE,
        "A resource that loads code or data of the machine where Envoy runs (a WebAssembly module, a dynamic module, a Go "
        "library, a database of addresses, a file of a form that nothing can stand in for) can be judged there only. "
        "Envoy, asked by check, refused it here, perhaps for that reason alone.",
        "It refuses the resource if the message is right where it runs.",
        "Run the check where the files are, or read the message and decide.",
        "",
        "",
        file="",
    ),
)
