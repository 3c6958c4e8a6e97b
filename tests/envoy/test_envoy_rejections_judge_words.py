"""A validating Envoy's words; every reason is one that Envoy 1.40 gave."""

from __future__ import annotations

import pytest

from fsxds.envoy.envoy_rejections import constraint_chain, plain_reason, remedy_for

CONSTRAINT = (
    "Proto constraint validation failed (BootstrapValidationError.StaticResources: embedded message failed validation | "
    "caused by Bootstrap_StaticResourcesValidationError.Clusters[1]: embedded message failed validation | caused by "
    "ClusterValidationError.ConnectTimeout: value must be greater than 0s)"
)
DUPLICATE = "error adding listener: 'm' has duplicate address '1.1.1.1:1' as existing listener, to check"
LEDS = "LEDS is only supported when EDS is used. Static cluster fsxds-stand-in-3 cannot use LEDS."


@pytest.mark.parametrize(
    ("reason", "plain"),
    [
        (CONSTRAINT, "value must be greater than 0s"),
        ("error adding listener '1.2.3.4:1': no filter chains specified", "no filter chains specified"),
        ("error adding listener named 'l': address is necessary", "address is necessary"),
        (DUPLICATE, "'m' has duplicate address '1.1.1.1:1' as existing listener, to check"),
        ("Unknown static secret: fsxds-stand-in/s", "Unknown static secret: s"),
        (LEDS, "a ClusterLoadAssignment cannot include both LEDS and a list of endpoints"),
        (
            "Invalid duration: Expected positive duration: seconds: -1\nnanos: 3\n",
            "Invalid duration: Expected positive duration: seconds: -1",
        ),
    ],
)
def test_reason_for_authors(reason: str, plain: str) -> None:
    """What was only said because the resources were put into a bootstrap is left out."""
    assert plain == plain_reason(reason)


def test_long_reasons_are_cut() -> None:
    """A reason has no more than 500 characters."""
    assert len(plain_reason("x" * 1000)) == 500


def test_secrets_are_hidden() -> None:
    """What is secret in the resource is hidden, also single lines of it, and so is what Envoy quotes of other fields."""
    secrets = ("alice:{SHA}abc\nbob:{SHA}def", "hunter2", "to")
    reason = 'invalid line bob:{SHA}def of hunter2 to stats: cluster_name: "web" value: "x"'

    assert plain_reason(reason, secrets) == (
        'invalid line <hidden> of <hidden> to stats: cluster_name: "web" value: <hidden>'
    )


def test_way_to_a_broken_rule() -> None:
    """The chain of a broken rule names each message and its field."""
    assert constraint_chain(CONSTRAINT) == (
        ("Bootstrap", "StaticResources"),
        ("Bootstrap_StaticResources", "Clusters[1]"),
        ("Cluster", "ConnectTimeout"),
    )
    assert constraint_chain("malformed IP address: a") == ()


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("malformed IP address: a", "IP address"),
        ("missing ): (a", "regular expression"),
        ("never heard of", "reference"),
    ],
)
def test_remedy(reason: str, word: str) -> None:
    """There is a remedy for every reason, a particular one for the common ones."""
    assert word in remedy_for(reason)
