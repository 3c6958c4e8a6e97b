"""The flags by which a command that connects to a server, or writes how an Envoy does, learns of TLS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fsxds.cli.command import CommandOption

_FILE = click.Path(path_type=Path)


def with_tls_flags(group: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags `--ca`, `--cert` and `--key`; its function gets them as `tls`, None without them.

    Args:
        group: the heading under which `--help` shows them.
    """
    flag = functools.partial(click.option, cls=CommandOption, group=group, metavar="FILE", type=_FILE)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def call(ca: Path | None, cert: Path | None, key: Path | None, **given: Any) -> None:
            # It imports gRPC, for which `--help` does not wait.
            from fsxds.client.client_tls import ClientTls

            function(tls=ClientTls.of(ca, cert, key), **given)

        for option in (
            flag("--key", help="The key to that certificate."),
            flag("--cert", help="The certificate to show, for a server with --client-ca."),
            flag("--ca", help="Speak TLS, and trust a server whose certificate is signed by one in this file."),
        ):
            call = option(call)
        return call

    return decorate
