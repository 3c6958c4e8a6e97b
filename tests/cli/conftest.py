"""Commands that run in the process of the tests make the catalogue of an API once, as a server does."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue, Features

_MAKE = Catalogue.of
_MADE: dict[tuple[bytes, str], list[Catalogue]] = {}


def _kept(serialized: bytes, description: str, features: Features | None = None) -> Catalogue:
    """Return the catalogue that was made of the same; the rules that parsing reads from an API are kept with it."""
    made = _MADE.setdefault((serialized, description), [])
    for one in made:
        if one.features == features:
            return one
    made.append(_MAKE(serialized, description, features))
    return made[-1]


@pytest.fixture(autouse=True)
def catalogues_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each command the catalogue of the first one that read the same API."""
    monkeypatch.setattr(Catalogue, "of", _kept)
