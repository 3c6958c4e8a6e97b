from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, SECRETS, TYPO, write_tree
from tests.support.envoy import find_envoy
from tests.support.settings_files import file_flags

LISTENER_WITH_BAD_LUA = """\
- name: web
  address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: web
        route_config: {name: web}
        http_filters:
        - name: envoy.filters.http.lua
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
            default_source_code: {inline_string: "text = this is not Lua"}
        - name: envoy.filters.http.router
          typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
"""

RUNTIME = "- name: features\n  layer: {}\n"


def test_a_clean_tree(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A tree without problems ends with status 0, nothing on stdout, and what is there on stderr."""
    tree = write_tree(tmp_path, cds=CLUSTERS, rtds=RUNTIME)

    assert 0 == main(["check", str(tree)])
    out, err = capfd.readouterr()
    assert ("", f"{tree}: clean, 2 files: 1 runtime layer, 1 cluster\n") == (out, err)


def test_problems(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems end with status 1; each begins with a path that can be opened from the current directory."""
    write_tree(tmp_path, cds=TYPO, eds="a: [")
    monkeypatch.chdir(tmp_path)

    assert 1 == main(["check", "xds"])
    out, err = capfd.readouterr()
    assert (
        "xds/cds.yaml:3:3: error[unknown-field]: resources[0].conect_timeout: "
        'envoy.config.cluster.v3.Cluster has no field "conect_timeout"\n'
        "3 |   conect_timeout: …\n"
        "  |   ^^^^^^^^^^^^^^\n"
        '  = help: did you mean "connect_timeout"?\n'
        "\n"
        "xds/eds.yaml:1:5: error[bad-syntax]: "
    ) in out
    assert "xds: 2 errors in 2 files: no resources\n" == err


def test_paths_are_relative_where_they_can_be(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory below the current one is named from there, however it was given; pipelines need it so."""
    tree = write_tree(tmp_path, cds=TYPO)
    monkeypatch.chdir(tmp_path)
    main(["check", str(tree), "--format", "json"])
    from_above = json.loads(capfd.readouterr().out)[0]["file"]
    monkeypatch.chdir(tree)
    main(["check", ".", "--format", "json"])

    assert ("xds/cds.yaml", "cds.yaml") == (from_above, json.loads(capfd.readouterr().out)[0]["file"])


def test_warnings_are_clean(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Warnings are printed, and do not change the status."""
    tree = write_tree(tmp_path, cds=TYPO)

    assert 0 == main(["check", str(tree), "--unknown-fields", "warn"])
    out, err = capfd.readouterr()
    assert f"{tree}/cds.yaml:3:3: warning[unknown-field]: " in out
    assert f"{tree}: clean, with 1 warning, in 1 file: 1 cluster\n" == err


@pytest.mark.parametrize(("severity", "expected"), [("error", 0), ("warning", 1), ("note", 1)])
def test_the_threshold_sets_the_status(tmp_path: Path, severity: str, expected: int) -> None:
    """`--severity` says from which weight on a problem makes the status 1."""
    (tmp_path / "clean").mkdir()
    tree, clean = write_tree(tmp_path, cds=TYPO), write_tree(tmp_path / "clean", cds=CLUSTERS)
    arguments = ["--unknown-fields", "warn", "--severity", severity]

    assert expected == main(["check", str(tree), *arguments])
    assert 0 == main(["check", str(clean), *arguments])


def test_notes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A note is told in a line, and only `--severity note` makes the status 1."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    (tree / "notes.txt").write_text("Ask me.\n")

    assert 0 == main(["check", str(tree)])
    assert (
        f"{tree}/notes.txt:1:1: note[ignored-file]: ignored: no format has this suffix; rename"
        in capfd.readouterr().out
    )
    assert 1 == main(["check", str(tree), "--severity", "note"])


def test_a_bootstrap_is_recognized(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The error says which commands are for it."""
    bootstrap = tmp_path / "envoy.yaml"
    bootstrap.write_text("node: {id: a, cluster: b}\nstatic_resources: {clusters: []}\n")

    assert 1 == main(["check", str(bootstrap)])
    out = capfd.readouterr().out
    assert "this is an Envoy bootstrap, not a resource" in out
    assert "make a tree of its resources by `fsxds import`, examine it by `fsxds doctor`" in out


def test_notes_of_a_kind_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Ten notes of a kind are printed, and all with `--all`; other formats have all."""
    tree = write_tree(
        tmp_path, rds="".join(f"- {{name: r{number}}}\n" for number in range(30)), lds=LISTENER_WITH_BAD_LUA
    )
    printed: dict[tuple[str, ...], str] = {}
    for flags in ((), ("--all",), ("--format", "json")):
        main(["check", str(tree), "--no-envoy", *flags])
        printed[flags] = capfd.readouterr().out

    assert [10, 30, 30] == [text.count("in this tree uses") for text in printed.values()]
    more = f"and 20 more such as {tree}/rds.yaml:1:3: note[unused-route-configuration]; fsxds check --all prints each"
    assert more in printed[()]
    assert "more such" not in printed["--all",]


def test_a_mistake_in_a_cluster_hides_no_missing_cluster(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A name counts as defined where it can be read, whatever else is wrong there; another is reported as missing."""
    route = "{match: {prefix: %s}, route: {cluster: %s}}"
    routes = f"[{route % ('/a', 'a')}, {route % ('/', 'missing')}]"
    tree = write_tree(
        tmp_path,
        cds="- {name: a, conect_timeout: 1s}\n",
        rds=f"- {{name: r, virtual_hosts: [{{name: v, domains: ['*'], routes: {routes}}}]}}\n",
    )
    main(["check", str(tree)])
    out = capfd.readouterr().out

    assert ("conect_timeout" in out, '"missing"' in out, 'cluster "a"' in out) == (True, True, False)


@pytest.mark.parametrize(
    ("count", "named"), [(2, "; nor 1.txt; rename"), (8, "; nor 1.txt, 2.txt, 3.txt, 4.txt, 5.txt, … 2 more;")]
)
def test_ignored_files_are_named_in_one_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int, named: str
) -> None:
    """Of many, the first six are named and the others counted."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    for number in range(count):
        (tree / f"{number}.txt").write_text("Ask me.\n")
    main(["check", str(tree)])

    assert named in capfd.readouterr().out


def test_ttl_that_is_dropped_is_told_where_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A ttl that Envoy would not survive is left out, which a note says; with `ttl: spec` it is told to clients."""
    tree = write_tree(tmp_path, eds="- name: web\n  ttl: 5s\n  resource: {cluster_name: web}\n", cds=CLUSTERS)

    assert 0 == main(["check", str(tree)])
    assert "eds.yaml:2:3: note[ttl-dropped]: " in capfd.readouterr().out
    assert 0 == main(["check", str(tree), *file_flags(ttl="spec")])
    assert "ttl-dropped" not in capfd.readouterr().out


def test_rules_are_lowered_and_silenced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--rules` changes what a rule weighs, and turns it off; a setting of the same name does the same."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    (tree / "notes.txt").write_text("Ask me.\n")
    settings = tmp_path / "fsxds.yaml"
    settings.write_text("rules: {ignored-file: error}\n")

    assert 0 == main(["check", str(tree), "--rules", "ignored-file=off"])
    assert "" == capfd.readouterr().out
    assert 1 == main(["check", str(tree), "--settings", str(settings)])
    assert "notes.txt:1:1: error[ignored-file]" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ignored-files=off", "there is no rule ignored-files; did you mean ignored-file?"),
        ("bad-syntax=off", "bad-syntax"),
        ("ignored-file=loud", "'loud' is not one of error, warning, note, off"),
    ],
)
def test_rules_that_cannot_be_changed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], written: str, expected: str
) -> None:
    """An unknown rule, one whose weight is fixed, and an unknown level are wrong use."""
    tree = write_tree(tmp_path, cds=CLUSTERS)

    assert 2 == main(["check", str(tree), "--rules", written])
    assert expected in capfd.readouterr().err


def test_a_real_envoy_is_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What only Envoy can know is told as any problem is, unless `--no-envoy` is given."""
    tree, clean = write_tree(tmp_path, lds=LISTENER_WITH_BAD_LUA), tmp_path / "clean"
    clean.mkdir()

    assert 0 == main(["check", str(tree), "--no-envoy"])
    capfd.readouterr()
    assert 1 == main(["check", str(tree)])
    assert f"{tree}/lds.yaml:" in (out := capfd.readouterr().out)
    assert "error[envoy-rejects]: " in out
    assert 0 == main(["check", str(write_tree(clean, cds=CLUSTERS)), "--with-envoy"])


LISTENER_WITH_TYPO = "- {name: typo, adress: {socket_address: {address: 127.0.0.1, port_value: 1}}}\n"


def errors_in(out: str) -> list[str]:
    """Return the file and the rule of each error."""
    lines = [line for line in out.splitlines() if "error[" in line]
    return [f"{line.partition(':')[0]} {line.partition('error[')[2].partition(']')[0]}" for line in lines]


ROUTES = """\
- name: %s
  virtual_hosts:
  - {name: v, domains: [%s], routes: [{match: {safe_regex: {regex: "x{99}"}}, direct_response: {status: 200}}]}
"""


def test_an_envoy_that_accepts_a_resource_overrules_what_predicts_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expression that is too large for Envoy's default is a note for an Envoy that takes it; all other errors stay."""
    envoy, runtime = tmp_path / "envoy", "{name: runtime, static_layer: {re2.max_program_size.error_level: 9999}}"
    envoy.write_text(
        f"#!/bin/sh\nexec '{find_envoy()}' \"$@\" --config-yaml 'layered_runtime: {{layers: [{runtime}]}}'\n"
    )
    envoy.chmod(0o755)
    duplicate = (ROUTES % ("keys", "b.example")).replace("{status: 200}", "{status: 200, status: 201}")
    tree = write_tree(
        tmp_path, rds=ROUTES % ("large", "a.example") + ROUTES % ("twice", "c.example, c.example") + duplicate
    )
    monkeypatch.chdir(tree)

    assert 1 == main(["check", ".", "--with-envoy", str(envoy)])
    accepting = capfd.readouterr().out
    assert 1 == main(["check", ".", "--with-envoy"])
    refusing = capfd.readouterr().out
    assert 1 == main(["check", ".", "--with-envoy", str(envoy), "--rules", "large-regex=error"])
    assert errors_in(refusing) == errors_in(capfd.readouterr().out)
    assert accepting.count("note[large-regex]") == 1
    assert "; but the real Envoy that was asked accepts the resource" in accepting
    kept = ["rds.yaml duplicate-domain", "rds.yaml duplicate-key", "rds.yaml large-regex", "rds.yaml large-regex"]
    assert sorted(errors_in(accepting)) == kept
    assert sorted(errors_in(refusing)) == sorted([*kept, "rds.yaml large-regex"])


def test_an_accepted_document_does_not_overrule_the_errors_of_another(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of a file of documents are not of one of them, and Envoy still rejects the second."""
    documents = [(ROUTES % ("r", "a.example"))[2:].replace("\n  ", "\n") for _ in range(2)]
    documents[0] = documents[0].replace("x{99}", "x").replace("name: r", "name: good")
    monkeypatch.chdir(write_tree(tmp_path, rds="---\n".join(documents)))

    assert 1 == main(["check", ".", "--with-envoy"])
    assert ["rds.yaml large-regex"] == errors_in(capfd.readouterr().out)


def test_an_envoy_does_not_overrule_a_conflict_between_resources(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked about the second resource alone, which has no conflict."""
    host = (
        "- {name: routes/%s, domains: [example.org], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}\n"
    )
    monkeypatch.chdir(write_tree(tmp_path, vhds=host % "a", more_vhds=host % "b"))

    assert 1 == main(["check", ".", "--with-envoy"])
    assert ["vhds.yaml duplicate-domain"] == errors_in(capfd.readouterr().out)


def test_a_real_envoy_is_asked_about_what_is_sound_in_a_broken_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run names the typo and what Envoy alone knows, and nothing twice, nor of what only refers to the typo."""
    route = "{match: {prefix: /}, route: {cluster: broken}}"
    tree = write_tree(
        tmp_path,
        cds="- {name: broken, conect_timeout: 1s}\n- {name: known, type: EDS}\n",
        rds=f"- {{name: r, virtual_hosts: [{{name: v, domains: ['*'], routes: [{route}]}}]}}\n",
        lds=LISTENER_WITH_BAD_LUA + LISTENER_WITH_TYPO,
    )
    monkeypatch.chdir(tree)

    assert 1 == main(["check", ".", "--with-envoy"])
    assert sorted(errors_in(capfd.readouterr().out)) == [
        "cds.yaml cluster-type",
        "cds.yaml unknown-field",
        "lds.yaml envoy-rejects",
        "lds.yaml unknown-field",
    ]


def test_a_real_envoy_is_asked_about_what_is_sound_in_the_broken_files_of_each_view(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the same is served in all views; a broken file stands for what it replaces below."""
    settings = "views: [{name: a, match: {cluster: a}, layers: [common, a]}, {name: b, layers: [common, b]}]"
    good = LISTENER_WITH_BAD_LUA.replace("text = this is not Lua", "")
    texts = {"common": good, "a": good + LISTENER_WITH_TYPO, "b": LISTENER_WITH_BAD_LUA + LISTENER_WITH_TYPO}
    for layer, text in texts.items():
        (tmp_path / "tree" / layer).mkdir(parents=True)
        (tmp_path / "tree" / layer / "lds.yaml").write_text(text)
    (tmp_path / "fsxds.yaml").write_text(settings)
    monkeypatch.chdir(tmp_path / "tree")

    assert 1 == main(["check", ".", "--with-envoy", "--settings", "../fsxds.yaml"])
    assert sorted(errors_in(capfd.readouterr().out)) == [
        "a/lds.yaml unknown-field",
        "b/lds.yaml envoy-rejects",
        "b/lds.yaml unknown-field",
    ]


def test_a_tree_that_envoy_takes_is_asked_about_once(tmp_path: Path) -> None:
    """Nobody is asked again about a tree that was taken, until it changes."""
    tree, asked, envoy = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "asked", tmp_path / "envoy"
    envoy.write_text(f'#!/bin/sh\necho >> "{asked}"\nexec "{find_envoy()}" "$@"\n')
    envoy.chmod(0o755)
    counts = []
    for timeout in ("1s", "1s", "2s"):
        (tree / "cds.yaml").write_text(CLUSTERS.replace("1s", timeout))
        arguments = ["check", str(tree), "--with-envoy", str(envoy), "--cache-dir", str(tmp_path / "cache")]
        assert 0 == main(arguments)
        counts.append(len(asked.read_text().splitlines()))

    assert [1, 1, 2] == counts


def test_another_envoy_is_asked_for_its_features_even_with_no_envoy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--no-envoy` judges by the commands that the given Envoy has, also if it is another build than the packaged one."""
    other = tmp_path / "envoy"
    other.write_bytes(Path(find_envoy()).read_bytes().replace(b"\x001.40.0\x00", b"\x001.39.0\x00") + b"other")
    other.chmod(0o755)
    log = '{name: log, typed_config: {"@type": type.googleapis.com/%s, log_format: {text_format_source: {inline_string: "%%NOPE%%"}}}}'
    log %= "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
    listener = LISTENER_WITH_BAD_LUA.replace("  filter_chains:", f"  access_log: [{log}]\n  filter_chains:")
    tree = write_tree(tmp_path, lds=listener)

    assert 1 == main(["check", str(tree), "--no-envoy", "--envoy", str(other), "--cache-dir", str(tmp_path)])
    assert "error[wrong-format-string]" in capfd.readouterr().out


def test_an_envoy_that_cannot_be_run_is_not_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where nobody demands it, an Envoy that cannot be run costs a line; where somebody does, it is wrong use."""
    tree, envoy = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "envoy"
    shutil.copyfile(find_envoy(), envoy)

    assert 0 == main(["check", str(tree), "--envoy", str(envoy)])
    assert "not validated with a real Envoy: " in capfd.readouterr().err
    assert 2 == main(["check", str(tree), "--envoy", str(envoy), "--with-envoy"])


def test_what_is_no_envoy_is_not_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A path that is not Envoy's is wrong use."""
    tree = write_tree(tmp_path, cds=CLUSTERS)

    assert 2 == main(["check", str(tree), "--with-envoy", "/bin/true"])
    assert "/bin/true" in capfd.readouterr().err


def test_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--format json` prints a list with every part of every problem."""
    tree = write_tree(tmp_path, cds=CLUSTERS, eds="a: [", more_clusters="", other=TYPO)

    assert 1 == main(["check", str(tree), "--format", "json"])
    problems = json.loads(capfd.readouterr().out)
    assert {"file", "line", "column", "pointer", "rule", "severity", "message", "remedy"} == set(problems[0])
    assert {"bad-syntax", "empty-file", "missing-type"} <= {problem["rule"] for problem in problems}


def test_formats_of_pipelines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The other formats are printed on stdout alone, so that they can be kept in a file."""
    tree = write_tree(tmp_path, cds=TYPO)
    written = {}
    for name in ("github", "sarif", "junit"):
        assert 1 == main(["check", str(tree), "--format", name])
        written[name], err = capfd.readouterr()
        assert f"{tree}: 1 error in 1 file: no resources\n" == err

    assert written["github"].startswith(f"::error file={tree}/cds.yaml,line=3,col=3,title=unknown-field::")
    assert "2.1.0" == json.loads(written["sarif"])["version"]
    assert "testsuites" == ET.fromstring(written["junit"]).tag


@pytest.mark.parametrize("name", ["text", "json", "github", "sarif", "junit"])
def test_secrets_are_in_no_format(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    """Whatever is wrong with a secret, nothing of it is printed."""
    broken = SECRETS.replace("private_key", "privat_key").replace("UzNDUjNU", "S3CR3T!")
    in_place = (
        "- name: web\n  transport_socket:\n    name: tls\n    typed_config:\n"
        '      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n'
        '      common_tls_context: {tls_certificates: [{privat_key: {inline_string: "S3CR3T"}, odd: 1}]}\n'
        "      sni: [5]\n"
    )
    tree = write_tree(tmp_path, sds=broken, cds=in_place, edge=f"{SECRETS}a: [\n")

    assert 1 == main(["check", str(tree), "--format", name])
    out, err = capfd.readouterr()
    assert "privat_key" in out
    assert "S3CR3T" not in out + err


def test_colours_are_for_terminals(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal gets colours, unless NO_COLOR is set; a pipe gets none."""
    tree = write_tree(tmp_path, cds=TYPO)
    main(["check", str(tree)])
    piped = capfd.readouterr().out
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    main(["check", str(tree)])
    coloured = capfd.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["check", str(tree)])
    uncoloured = capfd.readouterr().out

    assert ("\x1b[" in piped, "\x1b[1;31m" in coloured, "\x1b[1;31m" in uncoloured) == (False, True, False)
