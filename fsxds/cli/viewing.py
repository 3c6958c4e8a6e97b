"""Which view a command works on: the one that `--view` names, or that of the node which `--node-id` and others describe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict

import click

from fsxds.cli.command import CommandOption

Choice: TypeAlias = tuple[tuple[str, str], ...]
"""What the flags say of a node, by attribute, and by `view` the name of its view; nothing where none was given."""


class NodeFlags(TypedDict):
    """The flags that describe a node which is there: that of `fsxds dev`."""

    node_id: str
    node_cluster: str
    node_metadata: dict[str, str]


_viewed = functools.partial(click.option, cls=CommandOption, group="The view")


def read_metadata(_context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """Return what `KEY=VALUE` says, by key; a key with dots leads into objects."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE; write tier=gold, or labels.app=shop")
        found[key] = value
    return found


node_metadata_option = functools.partial(
    click.option,
    "--node-metadata",
    cls=CommandOption,
    metavar="KEY=VALUE",
    multiple=True,
    callback=read_metadata,
)


def with_view_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags that choose a view; its function gets them as `choice`."""

    @functools.wraps(function)
    def call(view: str | None, **given: Any) -> None:
        texts = {"view": view, "id": given.pop("node_id"), "cluster": given.pop("node_cluster")}
        texts |= zip(
            ("locality.region", "locality.zone", "locality.sub_zone"), given.pop("node_locality"), strict=False
        )
        texts |= {f"metadata.{key}": value for key, value in given.pop("node_metadata").items()}
        choice = tuple((attribute, text) for attribute, text in texts.items() if text is not None)
        function(choice=choice, **given)

    for option in (
        node_metadata_option(group="The view", help="A value in its metadata, such as tier=gold; may be given again."),
        _viewed(
            "--node-locality",
            metavar="REGION/ZONE",
            default="",
            callback=lambda _context, _parameter, text: [part or None for part in text.split("/")],
            help="Its region, or region, zone and sub-zone.",
        ),
        _viewed("--node-cluster", metavar="NAME", help="The cluster of that node."),
        _viewed("--node-id", metavar="ID", help="Show what the node of this id sees, by the views of the settings."),
        _viewed("--view", metavar="NAME", help="The view of this name in the settings."),
    ):
        call = option(call)
    return call
