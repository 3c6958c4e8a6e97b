"""Collections in a bootstrap: the locators of what Envoy asks for in place of all clusters or all listeners.

| collection | where Envoy takes it from | source |
| --- | --- | --- |
| a list of listeners | a mirrored file alone | ENVOY.md E77, E79 |
| a glob of clusters or listeners | an aggregated stream | ENVOY.md E77 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePath
from urllib.parse import quote

from fsxds.envoy.envoy_bootstrap import Section
from fsxds.errors import UsageError
from fsxds.observe.log_lines import escape
from fsxds.resource_names import MalformedName, ResourceName, is_structured
from fsxds.resource_types import BY_SHORT_NAME, ResourceType

LIST = BY_SHORT_NAME["lcds"]
_GLOBS: dict[str, ResourceType] = {BY_SHORT_NAME[name].message_type: BY_SHORT_NAME[name] for name in ("cds", "lds")}


def read_collection(text: str, authority: str) -> ResourceName:
    """Return the name of a collection: a list by its path alone, or by its name, or a glob. Raises UsageError."""
    try:
        name = ResourceName.parse(
            text if is_structured(text) else f"xdstp:///{LIST.message_type}/{quote(text)}", authority
        )
    except MalformedName as error:
        raise UsageError(f"--collection {escape(text)}: {error.fact}; {error.remedy}") from error
    if not name.is_glob if name.message_type == LIST.message_type else name.is_glob and name.message_type in _GLOBS:
        return name
    remedy = "give a list of listeners, or a glob of clusters or listeners: xdstp://<authority>/<type>/<path>/*"
    raise UsageError(f"--collection {escape(text)} is no collection that Envoy asks for; {remedy}")


def with_lists(section: Section, names: Iterable[ResourceName], path_of: Callable[[str], PurePath]) -> Section:
    """Return a bootstrap for mirrored files in which a list collection is read in place of all listeners.

    Args:
        section: the bootstrap.
        names: of one list at most.
        path_of: returns the absolute path of the file of a list, by its name.

    Raises:
        UsageError: there are several, or globs.
    """
    wanted = tuple(names)
    if not wanted:
        return section
    if len(wanted) > 1 or wanted[0].is_glob:
        fact = "from mirrored files, Envoy reads one list of listeners, and no globs"
        raise UsageError(f"{fact}; give one --collection of them, or --transport delta for globs")
    dynamic = _dynamic_of(section)
    dynamic.pop("lds_config", None)
    path = path_of(str(wanted[0]))
    return {**section, "dynamic_resources": {**dynamic, "lds_resources_locator": f"file://{quote(str(path))}"}}


def with_globs(section: Section, names: Iterable[ResourceName]) -> Section:
    """Return a bootstrap for an aggregated stream in which globs are asked for in place of all of their type.

    Raises:
        UsageError: there are several of a type, or lists.
    """
    dynamic = _dynamic_of(section)
    for name in names:
        row = _GLOBS.get(name.message_type)
        if row is None:
            fact = "Envoy reads lists of listeners from files alone"
            raise UsageError(f"{fact}; give --transport files, or a glob: xdstp://<authority>/<type>/<path>/*")
        key = f"{row.short_name}_resources_locator"
        if key in dynamic:
            raise UsageError(f"Envoy asks for one collection of {row.noun}; give one --collection of them")
        dynamic[key] = str(name)
        source = f"{row.short_name}_config"
        dynamic.setdefault(source, {"resource_api_version": "V3", "ads": {}})
    return {**section, "dynamic_resources": dynamic}


def _dynamic_of(section: Section) -> Section:
    dynamic = section["dynamic_resources"]
    return dict(dynamic) if isinstance(dynamic, dict) else {}
