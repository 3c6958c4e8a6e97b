"""Why a stream ended, in words for people."""

from __future__ import annotations

import re

import grpc

from fsxds.watching.updates import LostError

# The code of LostError where what listens there speaks something else; it is none of gRPC's.
WRONG_PROTOCOL = "WRONG_PROTOCOL"

_NO_SUCH_METHOD = grpc.StatusCode.UNIMPLEMENTED
# To say the same again would be answered with the same again.
_FINAL = frozenset(
    {
        _NO_SUCH_METHOD,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
# gRPC's words for a connection that could not be made go from the outside to the inside; the last say what is wrong.
_CONNECT_WORDS = re.compile(
    r"failed to connect to all addresses; .*?last error: \w+: (?:(?:ipv4|ipv6|unix):\S+: )?"
    r"(?:Failed to connect to remote host: (?:connect: )?|connect failed: addr: \S+ error: )?(?P<connect>.*)"
    r"|.*errors resolving .*?: (?P<resolve>[^:\]]*)\]?",
    re.DOTALL,
)
# What gRPC says of a server that answers with something else than HTTP/2.
_OTHER_PROTOCOL = "Failed parsing HTTP/2"


def lost_by(code: grpc.StatusCode, details: str, method: str) -> LostError:
    """Return the end of a call in words for people; those of the server are quoted."""
    quoted = f', "{_cut(details)}"' if details else ""
    if code is _NO_SUCH_METHOD:
        return LostError(f"the server has no {method.rpartition('/')[2]}{quoted}", code.name, is_final=True)
    connecting = _CONNECT_WORDS.fullmatch(details) if code is grpc.StatusCode.UNAVAILABLE else None
    if connecting is not None and _OTHER_PROTOCOL in details:
        return LostError("what listens there does not speak gRPC", WRONG_PROTOCOL)
    if connecting is not None:
        return LostError(f"cannot connect: {_cut(connecting['connect'] or connecting['resolve'])}", code.name)
    return LostError(f"the server ended the stream: {code.name}{quoted}", code.name, is_final=code in _FINAL)


def _cut(details: str) -> str:
    return re.sub(r"\s+", " ", details)[:300]
