"""The setting `upstream`: servers that are sources, by flags, in the environment and in a settings file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from fsxds.cli.main import main
from fsxds.model.errors import UsageError
from fsxds.settings.options import BY_NAME, Settings
from fsxds.settings.reading import SettingsChange, read_settings
from fsxds.settings.structured import MistakesFound
from fsxds.settings.upstream_rules import UPSTREAMS, Authority, UpstreamRule, fault_of_server
from tests.cli.test_command import settings_of
from tests.support.settings_files import complaints_of, read_file

SAMPLE = """\
upstream:
- 10.0.0.1:18000,10.0.0.2:18000
- servers: ["unix:/run/xds.sock", "https://xds.example.com/base"]
  ca: tls/ca.crt
  cert: tls/me.crt
  key: tls/me.key
  token: /etc/token
"""


def test_a_file_has_texts_and_objects(tmp_path: Path) -> None:
    """A text is the servers of one upstream; an object has files of its own, relative to the settings file."""
    first = UpstreamRule(("10.0.0.1:18000", "10.0.0.2:18000"))
    tls = tmp_path / "tls"
    second = UpstreamRule(
        ("unix:/run/xds.sock", "https://xds.example.com/base"),
        ca=tls / "ca.crt",
        cert=tls / "me.crt",
        key=tls / "me.key",
        token=Path("/etc/token"),
    )

    assert (first, second) == read_file(tmp_path, SAMPLE).upstream
    schema = Draft202012Validator(BY_NAME["upstream"].form.schema)
    assert [] == list(schema.iter_errors(yaml.safe_load(SAMPLE)["upstream"]))


def test_an_upstream_is_called_by_its_authority_or_its_first_server() -> None:
    """The name says which one is meant: the authority where there is one."""
    rule = UpstreamRule(("a:1", "b:1"))

    assert ("a:1", "east") == (rule.name, replace(rule, authority="east").name)


def test_the_flag_may_be_given_again() -> None:
    """Each flag is one upstream, with commas between its servers."""
    assert (UpstreamRule(("a:1", "b:1")), UpstreamRule(("c:1",))) == settings_of(
        "--upstream", "a:1,b:1", "--upstream", "c:1"
    ).upstream
    assert settings_of().upstream is None


def test_the_environment_has_spaces_between_upstreams() -> None:
    """A variable is one text."""
    settings = read_settings({}, {"FSXDS_UPSTREAM": "a:1,b:1 c:1"})

    assert (UpstreamRule(("a:1", "b:1")), UpstreamRule(("c:1",))) == settings.upstream


@pytest.mark.parametrize(
    ("server", "fact"),
    [
        ("a", "is no address of an xDS server"),
        ("a:b", "is no address of an xDS server"),
        ("a:70000", "is no address of an xDS server"),
        (":18000", "has no host or no port"),
        ("a:0", "has no host or no port"),
        ("unix:", "is no address"),
        ("https://", "is no URL"),
        ("https://a:0", "is no URL"),
        ("https://[::1", "is no URL"),
        ("http://a/b c", "is no URL"),
        ("https://me:hunter2@a", "has a user or a password"),
        ("https://hunter2@a", "has a user or a password"),
        ("https://a?token=hunter2", "has a query or a fragment"),
        ("hunter2@a:1", ""),
    ],
)
def test_what_is_no_address_is_rejected_without_its_text(server: str, fact: str) -> None:
    """The fact says what to write; an address may hold a password by mistake, which is not shown."""
    fault = fault_of_server(server)

    assert fault is not None
    assert fact in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize("server", ["a:1", "[::1]:1", "unix:/a", "http://a", "https://a:8443/b", "http://[::1]:80/"])
def test_addresses(server: str) -> None:
    """Streams have a host and a port, or a socket; REST has a URL."""
    assert fault_of_server(server) is None


def test_mistakes_have_their_places(tmp_path: Path) -> None:
    """All mistakes of a file come in one go, each at its line."""
    text = """\
upstream:
- nowhere
- {server: [a:1]}
- {servers: [], cert: a}
- {servers: [a:1, ":2"]}
- 5
- ""
- b:1
- b:1,c:1
"""
    assert complaints_of(tmp_path, text) == [
        (
            "fsxds.yaml:2:3: upstream[0]: is no address of an xDS server; write HOST:PORT, unix:/path, or http://HOST:PORT "
            "for REST"
        ),
        "fsxds.yaml:3:3: upstream[1]: has no servers; add it",
        "fsxds.yaml:3:4: upstream[1].server: there is no such key; did you mean servers?",
        "fsxds.yaml:4:3: upstream[2]: has one of cert and key, which belong together; give both, or neither",
        "fsxds.yaml:4:4: upstream[2].servers: is empty; give a value, or remove the key",
        "fsxds.yaml:5:19: upstream[3].servers[1]: has no host or no port to connect to; write HOST:PORT",
        "fsxds.yaml:6:3: upstream[4]: is neither an address nor a mapping; write HOST:PORT, or servers: [HOST:PORT]",
        "fsxds.yaml:7:3: upstream[5]: is empty, or has a NUL character; write a text",
        "fsxds.yaml:9:3: upstream[7]: is another upstream already; give each server once",
    ]


@pytest.mark.parametrize("written", ["", "  ", ",", [], {}, 5, None])
def test_nothing_is_no_upstream(written: object) -> None:
    """A value has an address at least."""
    with pytest.raises(MistakesFound):
        UPSTREAMS.read(written)


def test_a_password_on_the_command_line_is_not_repeated(capfd: pytest.CaptureFixture[str]) -> None:
    """Terminals are recorded, and logs of pipelines kept."""
    assert main(["serve", "--upstream", "https://me:hunter2@a"]) == 2

    error = capfd.readouterr().err
    assert error.startswith("fsxds serve: Invalid value for '--upstream': has a user or a password")
    assert (1, False) == (error.count("\n"), "hunter2" in error)


def test_a_password_in_the_environment_is_not_repeated() -> None:
    """It may come from where others read the complaint."""
    with pytest.raises(UsageError, match="FSXDS_UPSTREAM: has a user or a password") as caught:
        read_settings({}, {"FSXDS_UPSTREAM": "a:1 hunter2@b:1"})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "changed", "needs_restart"),
    [
        ({"a": Authority("https://a")}, {"a": Authority("https://b")}, ("authorities",), ()),
        ({"a": Authority("https://a")}, {"a": Authority("https://b", ("c:1",))}, (), ("authorities",)),
        ({"a": Authority("", ("b:1",))}, {"a": Authority("https://b", ("b:1",))}, ("authorities",), ()),
        ({"a": Authority("", ("b:1",))}, None, (), ("authorities",)),
    ],
)
def test_which_upstreams_there_are_does_not_change_while_running(
    before: dict[str, Authority],
    after: dict[str, Authority] | None,
    changed: tuple[str, ...],
    needs_restart: tuple[str, ...],
) -> None:
    """SIGHUP applies other URLs of authorities; other servers of theirs need a restart, which is said."""
    change = SettingsChange.between(Settings(authorities=before), Settings(authorities=after), "serve")

    assert (changed, needs_restart) == (change.changed, change.needs_restart)
    assert change.settings.authorities == (after if changed else before)
