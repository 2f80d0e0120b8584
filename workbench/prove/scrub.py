"""Removes what is private: only words of an allow-list are kept, and a second scan checks that.

A word that is not in ``words.toml`` becomes its shape: ``alice7`` is written as ``xxxxx#``. So the
form of an unknown token of tegrastats can be seen, and a name cannot.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...collectors.board.machine import Machine

_LISTS = msgspec.toml.decode(Path(__file__).with_name("words.toml").read_bytes())
_WORDS = frozenset(" ".join(_LISTS.values()).split())
_LONGEST_NUMBER = 10

_ADDRESS = (
    r"(?:\d{1,3}\.){3}\d{1,3}"  # IPv4; a version of four numbers is cut where it is read
    r"|(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}"  # MAC
    # IPv6
    r"|(?:[0-9A-Fa-f]{1,4}:){3,}[0-9A-Fa-f:]+|[0-9A-Fa-f]{1,4}::[0-9A-Fa-f:]*|::[0-9A-Fa-f]+"
    r"|[^\s@]{1,64}@[^\s@]{1,255}\.[a-z]{2,}"  # mail, which may not be longer
    r"|[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"  # UUID
)
_SUSPECT = re.compile(
    rf"(?<![\w.]){_ADDRESS}(?![\w.])|/(?:home|Users|media|mnt)/|\d{{{_LONGEST_NUMBER + 1},}}"
)
_UNIT = re.compile(rf"{_ADDRESS}|\w+")


def clean(text: str) -> str:
    """Return a line with every word that is not on the list replaced by its shape.

    >>> clean("VDD_IN 5139mW/4890mW alice@10.0.0.7 /home/alice 48:b0:2d:aa:bb:cc 1423019123456")
    'VDD_IN 5139mW/4890mW xxxxx@##.#.#.# /xxxx/xxxxx ##:x#:#x:xx:xx:xx #############'
    """
    return _UNIT.sub(_public_form, text)


def _public_form(found: re.Match[str]) -> str:
    unit = found[0]
    return unit if _is_known(unit) else _shape(unit)


def _is_known(unit: str) -> bool:
    """Return whether a unit is on the list, or is made of such words and of short numbers."""
    if unit in _WORDS:
        return True
    parts = re.findall(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+", unit)
    return all(map(_is_known_part, parts))


def _is_known_part(part: str) -> bool:
    if part.isdecimal():
        return len(part) <= _LONGEST_NUMBER
    return part in _WORDS or part.strip("_") == ""


def _shape(unit: str) -> str:
    """Return a unit with its letters and digits hidden; at most 24 characters tell its length."""
    hidden = re.sub(r"[A-Z]", "X", re.sub(r"\d", "#", unit[:24].replace("@", "?")))
    return re.sub(r"[^\W\dX_]", "x", hidden)


def private_words(machine: Machine) -> frozenset[str]:
    """Return names and numbers of this machine and its users that no file may have."""
    texts = [machine.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER", "HOSTNAME")]
    for path in (
        "/etc/hostname",
        "/proc/sys/kernel/hostname",
        "/etc/machine-id",
        "/proc/device-tree/serial-number",
        *machine.find("/sys/class/net/*/address"),
    ):
        texts.append(machine.text(path) or "")
    for line in (machine.text("/etc/passwd") or "").splitlines():
        name, _, number, _, long_name, home, *_ = [*line.split(":"), *[""] * 7][:7]
        if number.isdecimal() and 1000 <= int(number) < 65000:
            texts += [name, *re.split(r"[ ,]+", long_name), home]
    words = map(str.strip, texts)
    # Shorter ones stand in any text by chance.
    return frozenset(word for word in words if len(word) >= 3)


def leaks(text: str, private: Iterable[str]) -> list[str]:
    """Return the private words and address-like texts that a text has, by shape.

    A private word that is itself on the list, such as a user ``nvidia``, tells nothing.
    """
    leaked = [match[0] for match in _SUSPECT.finditer(text)]
    for word in private:
        is_public = all(map(_is_known, re.findall(r"\w+", word)))
        if not is_public and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            leaked.append(word)
    return list(map(_shape, leaked))
