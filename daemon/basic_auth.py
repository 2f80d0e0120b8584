"""Users and their passwords, as bcrypt made them."""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from types import ModuleType

from ..parsers.errors import Mendable

# Wrong ones are remembered too, so that a scraper that is set up wrongly costs no time each time.
_REFUSED_AT_MOST = 128
# bcrypt reads no further, and Go's cuts there without a word.
_LONGEST = 72


def load_bcrypt() -> ModuleType:
    """Return the library.

    Raises:
        Mendable: It is not installed.
    """
    try:
        import bcrypt
    except ImportError:
        raise Mendable("basic_auth_users needs bcrypt", "pip install bcrypt") from None
    return bcrypt


def read_credentials(header: str) -> tuple[bytes, bytes] | None:
    """Read user and password of an ``Authorization`` header; ``None`` where it has none.

    >>> read_credentials("Basic cHJvbTpwdw==")
    (b'prom', b'pw')
    """
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        return None
    user, colon, password = text.partition(b":")
    return (user, password) if colon else None


class Passwords:
    """Verifies passwords; one that was verified is taken at once the next time.

    bcrypt is slow on purpose: 60 ms at a cost of 10. So one password at a time is verified, in a
    thread, and the answer is kept under a digest that only this process can make.
    """

    def __init__(self) -> None:
        """Know nobody yet."""
        self._bcrypt = load_bcrypt()
        self._salt = os.urandom(32)
        self._nobody = self._bcrypt.hashpw(b"", self._bcrypt.gensalt(10))
        self._taken: set[bytes] = set()
        self._refused: dict[bytes, None] = {}
        self._one_at_a_time = asyncio.Lock()

    async def accept(self, header: str, users: Mapping[str, str]) -> bool:
        """Say whether an ``Authorization`` header names a user and the right password.

        Args:
            header: As it was sent; may be empty.
            users: Names and hashes now in force; a password is verified again under a new hash.
        """
        found = read_credentials(header)
        if found is None:
            return False
        user, password = found
        hashed = users.get(user.decode("utf-8", "replace"))
        # A stranger costs as much time as anybody, so that names cannot be found out by it.
        against = self._nobody if hashed is None else hashed.encode()
        key = self._digest(user, password, against)
        known = self._known(key)
        if known is None:
            async with self._one_at_a_time:
                known = self._known(key)  # by the one before
                if known is None:
                    right = await asyncio.to_thread(
                        self._bcrypt.checkpw, password[:_LONGEST], against
                    )
                    known = right and hashed is not None
                    self._remember(key, known, len(users))
        return known

    def _digest(self, *parts: bytes) -> bytes:
        made = hashlib.blake2b(key=self._salt, digest_size=32)
        for part in parts:
            made.update(len(part).to_bytes(8, "little") + part)
        return made.digest()

    def _known(self, key: bytes) -> bool | None:
        if key in self._taken:
            return True
        return False if key in self._refused else None

    def _remember(self, key: bytes, right: bool, users: int) -> None:
        if right:
            if len(self._taken) > 4 * users:  # hashes that are no longer in force
                self._taken.clear()
            self._taken.add(key)
            return
        self._refused[key] = None
        if len(self._refused) > _REFUSED_AT_MOST:
            del self._refused[next(iter(self._refused))]
