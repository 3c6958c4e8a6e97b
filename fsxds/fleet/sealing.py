"""Encryption of a fleet's values: AES-GCM, with keys from a file on its servers.

| rule | reason |
| --- | --- |
| The file's first key seals, each opens. | A new one is added below the others on all servers, then moved up on all. |
| A value is sealed together with its key in the engine. | Moved under another key it is not opened. |
| Digests of objects are hashed with the key. | The digest of a guessable secret would reveal it. |
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from os import urandom
from pathlib import Path

from fsxds.model.errors import UsageError
from fsxds.snapshots.encoding import DIGEST_BYTES, DamagedBytesError, Digest

KEY_BYTES = 32
_ID_BYTES = 4
_NONCE_BYTES = 12


class Sealing:
    """The first key seals, any opens."""

    may_have_secrets = True

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra

        self._keys = {_id_of(key): AESGCM(key) for key in keys}
        self._names: Mapping[bytes, bytes] = {_id_of(key): key for key in keys}
        self.key_id = _id_of(keys[0])

    @classmethod
    def of(cls, path: Path) -> Sealing:
        """Read keys: 64 hex digits on each line. Raises UsageError."""
        try:
            lines = path.read_text(encoding="ascii").split()
            keys = tuple(map(bytes.fromhex, lines))
        except OSError as error:
            raise UsageError(f"--fleet-encryption-key: {path} cannot be read: {error.strerror}") from error
        except ValueError:
            keys = ()
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            remedy = "write 64 hex digits on each line, as `openssl rand -hex 32` prints them"
            raise UsageError(f"--fleet-encryption-key: {path} does not hold one key alone; {remedy}")
        try:
            return cls(keys)
        except ImportError as error:
            raise UsageError(
                "--fleet-encryption-key needs cryptography; install it with `pip install fsxds[certificates]`"
            ) from error

    def sealed(self, key: bytes, value: bytes) -> bytes:
        """Seal a value for an engine's key."""
        nonce = urandom(_NONCE_BYTES)
        return self.key_id + nonce + self._keys[self.key_id].encrypt(nonce, value, key)

    def opened(self, key: bytes, sealed: bytes) -> bytes:
        """Open a key's value. Raises DamagedBytesError."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        cipher, start = self._keys.get(sealed[:_ID_BYTES]), _ID_BYTES + _NONCE_BYTES
        if cipher is None:
            raise DamagedBytesError("it is not sealed with a key that this server has")
        try:
            return cipher.decrypt(sealed[_ID_BYTES:start], sealed[start:], key)
        except (InvalidTag, ValueError) as error:
            raise DamagedBytesError("it was sealed for another place, or is damaged") from error

    def key_of(self, sealed: bytes) -> bytes:
        """Return the id of the key."""
        return sealed[:_ID_BYTES]

    def name_of(self, digest: Digest, key_id: bytes) -> bytes:
        """Do not reveal the digest."""
        return blake2b(digest, digest_size=DIGEST_BYTES, key=self._names[key_id], person=b"name").digest()


class Cleartext:
    """Seals nothing; `may_have_secrets` if they may be kept in clear."""

    key_id = b""

    def __init__(self, *, may_have_secrets: bool = False) -> None:
        self.may_have_secrets = may_have_secrets

    def sealed(self, key: bytes, value: bytes) -> bytes:
        """Return the value."""
        return value

    def opened(self, key: bytes, sealed: bytes) -> bytes:
        """Return the value."""
        return sealed

    def key_of(self, sealed: bytes) -> bytes:
        """Return the empty id."""
        return b""

    def name_of(self, digest: Digest, key_id: bytes) -> bytes:
        """Return the digest."""
        return digest


def _id_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=_ID_BYTES, person=b"id").digest()
