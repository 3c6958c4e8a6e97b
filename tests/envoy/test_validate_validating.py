"""One run of a real Envoy on a bootstrap."""

from __future__ import annotations

from pathlib import Path

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.envoy_log import ValidationFailure
from fsxds.envoy.static_bootstrap import Renderer, Rendering
from fsxds.envoy.validate import LARGE, Validator
from tests.envoy.judged import resources_of
from tests.support.envoy import find_envoy


def rendering_of(text: str, catalogue: Catalogue) -> Rendering:
    """Render all clusters of a file."""
    resources = resources_of("cds", text, catalogue)
    return Renderer(catalogue, resources, "/nowhere").render(range(len(resources)))


def test_patience_ends(catalogue: Catalogue, tmp_path: Path) -> None:
    """An Envoy that takes too long is ended, and that is a NACK."""
    answer = Validator(Path(find_envoy()), tmp_path, patience_s=-0.03).validate(
        rendering_of("resources: [{name: a}]", catalogue)
    )

    assert answer is not None
    assert answer.reason.startswith("Envoy hangs")
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_not_the_whole(catalogue: Catalogue, tmp_path: Path) -> None:
    """Envoy takes of a broken binary bootstrap what it can read; that is not to take it."""
    rendering = rendering_of("resources: [{name: a}]", catalogue)
    rendering.clusters["forgotten"] = None

    assert Validator(Path(find_envoy()), tmp_path).validate(rendering) == ValidationFailure(
        "Envoy reads only a part of it"
    )


def test_large_ones_are_refused_with_all_details(catalogue: Catalogue, tmp_path: Path) -> None:
    """A large bootstrap is asked for twice where it is rejected: the second time tells the suspect."""
    clusters = ", ".join(f"{{name: c{number}}}" for number in range(LARGE))
    answer = Validator(Path(find_envoy()), tmp_path).validate(
        rendering_of(f"resources: [{clusters}, {{name: bad, type: EDS}}]", catalogue)
    )

    assert answer is not None
    assert answer.suspect == LARGE
    assert len(answer.proven) == LARGE
