"""What is remembered from one resource to the next changes nothing: each is parsed as it would be alone."""

import random
from pathlib import PurePosixPath

import pytest

from fsxds.api import constraints, converter
from fsxds.api.catalogue import Catalogue
from fsxds.formats import yaml_format
from fsxds.lint.linter import Linter
from fsxds.model.resources import ParsedFile
from fsxds.model.values import SourceFile
from fsxds.snapshots.parse import FileParser
from tests.agreement.cases import make_cases, text_of

CASES, SEED = 700, 5


def files_of_cases(catalogue: Catalogue) -> list[SourceFile]:
    """Return files of one resource each, of all types, nearly all of them with a change at random."""
    return [
        SourceFile.of(PurePosixPath(f"{number}.{case.seed.type_name}.yaml"), text_of([case.resource], ".yaml").encode())
        for number, case in enumerate(make_cases(catalogue, CASES, SEED))
    ]


def outcome(parsed: ParsedFile) -> object:
    """Return all that is known of a file, also what does not count when files are compared."""
    resources = [(one, one.references, one.origin.field_path, one.origin.line) for one in parsed.resources]
    return parsed, resources, [problem.severity for problem in parsed.problems]


def test_what_is_remembered_changes_nothing(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resources with random changes come out as without any memory, and without the short cuts of YAML."""
    files = files_of_cases(catalogue)
    with monkeypatch.context() as patch:
        patch.setattr(converter, "_LARGEST_REMEMBERED", -1)
        patch.setattr(constraints, "_LARGEST_SILENT", -1)
        patch.setattr(yaml_format, "read_blocks", lambda *_: None)
        forgetful = FileParser(catalogue, check=Linter())
        expected = {file.path: outcome(forgetful.parse(file)) for file in files}
    parser = FileParser(catalogue, check=Linter())
    chance = random.Random(SEED)
    for file in chance.sample(files, len(files)) + chance.sample(files, len(files)):
        assert expected[file.path] == outcome(parser.parse(file)), file.content.decode()

    assert any(not parser.parse(file).is_good for file in files)


POLICIES = "envoy.extensions.load_balancing_policies"
BARE = f"""{{policies: [{{typed_extension_config: {{name: a, typed_config: {{
  "@type": type.googleapis.com/{POLICIES}.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin,
  blackout_period: -1s}}}}}}]}}"""
PICKED = f"""{{policies: [{{typed_extension_config: {{name: b, typed_config: {{
  "@type": type.googleapis.com/{POLICIES}.wrr_locality.v3.WrrLocality, endpoint_picking_policy: {BARE}}}}}}}]}}"""


def test_equal_contents_are_judged_by_their_place(catalogue: Catalogue) -> None:
    """Of a policy within another one Envoy reads no durations: a wrong one is reported of the policy alone."""
    parser = FileParser(catalogue, check=Linter())
    files = [
        SourceFile.of(PurePosixPath("cds.yaml"), f"[{{name: a, load_balancing_policy: {policy}}}]".encode())
        for policy in (PICKED, BARE) * 2
    ]

    found = [["wrong-duration" in {one.rule for one in parser.parse(file).problems}] for file in files]

    assert [[False], [True]] * 2 == found


def test_a_short_cut_does_not_reach_deeper(catalogue: Catalogue) -> None:
    """Content that is known from higher up is too deep all the same where it is too deep."""
    value: object = {}
    texts = []
    for depth in range(60):
        socket = {"name": "s", "typed_config": value} if value else {"name": "s"}
        value = {"@type": "type.googleapis.com/envoy.config.core.v3.TransportSocket", **socket}
        texts.append(
            text_of([{"name": f"c{depth}", "transport_socket": {"name": "s", "typed_config": value}}], ".json")
        )
    path = PurePosixPath("clusters.json")
    parser = FileParser(catalogue, check=Linter())

    expected = [outcome(FileParser(catalogue, check=Linter()).parse(SourceFile.of(path, texts[-1].encode())))]
    for text in texts[:-1]:
        parser.parse(SourceFile.of(path, text.encode()))

    assert expected == [outcome(parser.parse(SourceFile.of(path, texts[-1].encode())))]
