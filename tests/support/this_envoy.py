"""The API of the real Envoy, found once per process: reading an executable takes 0.4 s."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest import mock

from fsxds.api.catalogue import Catalogue, Features
from fsxds.source.envoy_api import find_api

_MAKE = Catalogue.of
_MADE: dict[tuple[bytes, str], list[Catalogue]] = {}


@cache
def this_envoy() -> Catalogue:
    """Return every message type that this Envoy knows, wherever it lies, and its features."""
    found = find_api(envoy=None, descriptors=None, cache_dir=None)
    return Catalogue.of(found.serialized, "this Envoy", found.features)


@contextmanager
def kept_catalogues() -> Iterator[None]:
    """Give each command of this process the catalogue of the first one that read the same API, as a server does."""
    with mock.patch.object(Catalogue, "of", _kept):
        yield


def _kept(serialized: bytes, description: str, features: Features | None = None) -> Catalogue:
    """Return the catalogue that was made of the same; the rules that parsing reads from an API are kept with it."""
    made = _MADE.setdefault((serialized, description), [])
    for one in made:
        if one.features == features:
            return one
    made.append(_MAKE(serialized, description, features))
    return made[-1]
