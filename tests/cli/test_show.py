from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, SECRETS, TYPO, write_tree


def shown(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what `fsxds show` prints."""
    assert main(["show", *arguments]) == 0
    return capfd.readouterr().out


def test_the_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The table has type, name, version, place and the author's own version of each resource, and is never cut."""
    name = "x" * 300
    tree = write_tree(tmp_path, cds=CLUSTERS.replace("web", name), sds=SECRETS)

    heading, secret, cluster = (line.split() for line in shown(capfd, str(tree)).splitlines())

    assert heading == ["TYPE", "NAME", "VERSION", "FROM", "VERSION_INFO"]
    assert [secret[0], secret[1], secret[3]] == ["sds", "web", f"{tree}/sds.yaml:1"]
    assert [cluster[0], cluster[1], *cluster[3:]] == ["cds", name, f"{tree}/cds.yaml:3", "7"]
    assert len(cluster[2]) == 12


def test_columns_that_few_trees_need(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Times to live and aliases have columns where there are any; the other formats have them with each resource."""
    tree = write_tree(
        tmp_path,
        cds="- {name: a}\n- {ttl: 1.5s, resource: {name: b}}\n",
        vhds="- {name: r/h, domains: [Web.example, '*']}\n",
    )

    heading, first, second, host = (line.split() for line in shown(capfd, str(tree)).splitlines())
    listing = json.loads(shown(capfd, str(tree), "--format", "json"))

    assert heading[4:] == ["VERSION_INFO", "TTL", "ALIASES"]
    assert [first[4:], second[4:], host[4:]] == [[], ["1.5s"], ["r/web.example", "r/*"]]
    assert [(None, None), (1.5, None)] == [
        (one.get("ttl_s"), one.get("aliases")) for one in listing["cds"]["resources"]
    ]
    assert ["r/web.example", "r/*"] == listing["vhds"]["resources"][0]["aliases"]


def test_redirects_say_where_they_lead(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A redirect is shown with what it leads to, by its own name; where there are some, a column has their locators."""
    locator = "xdstp:///envoy.config.cluster.v3.Cluster/a"
    tree = write_tree(tmp_path, cds="- {name: a, alt_stat_name: x}\n- {name: b, resource_name: {name: a}}\n")

    heading, first, second = (line.split() for line in shown(capfd, str(tree)).splitlines())
    one, other = json.loads(shown(capfd, str(tree), "--format", "json"))["cds"]["resources"]

    assert heading[4:] == ["VERSION_INFO", "REDIRECTS", "TO"]
    assert [first[4:], second[4:]] == [[], [locator]]
    assert ("redirect" in one, other["redirect"]) == (False, locator)
    assert (other["resource"]["name"], other["resource"]["alt_stat_name"]) == ("b", "x")


def test_secrets_are_hidden(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither format prints the inline values of a Secret."""
    tree = write_tree(tmp_path, sds=SECRETS)

    for output_format, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        text = shown(capfd, str(tree), "--format", output_format)
        secret = read(text)["sds"]["resources"][0]["resource"]

        assert secret["tls_certificate"] == {
            "private_key": {"inline_string": "<hidden>"},
            "certificate_chain": {"inline_bytes": "<hidden>"},
        }
        assert "S3CR3T" not in text
        assert "UzNDUjNU" not in text


def test_one_type(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--type` shows that type only, with its version and the resource in full."""
    tree = write_tree(tmp_path, cds=CLUSTERS, sds=SECRETS)

    listing = json.loads(shown(capfd, str(tree), "--type", "cds", "--format", "json"))
    (member,) = listing["cds"]["resources"]

    assert ["cds"] == list(listing)
    assert len(listing["cds"]["version"]) == len(member["version"]) == 32
    assert ("web", "7", f"{tree}/cds.yaml:3") == (member["name"], member["version_info"], member["from"])
    assert member["resource"] == {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "web",
        "type": "STATIC",
        "connect_timeout": "1s",
    }


def test_problems_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is wrong with the tree is counted on stderr, and what is good is shown."""
    tree = write_tree(tmp_path, cds=TYPO, sds=SECRETS)

    assert main(["show", str(tree)]) == 0
    out, err = capfd.readouterr()

    assert len(out.splitlines()) == 2
    assert err == f"1 problem: fsxds check {tree} lists them\n"
