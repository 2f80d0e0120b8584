"""What goes wrong while text is read, and what ends it."""


class Mendable(Exception):  # noqa: N818 - it is named for what it promises
    """A failure that a person can end; the command line prints it as one line.

    Attributes:
        what: What is wrong, with the value that was found.
        mend: What to do about it: a command, a key, a path.
    """

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}: {mend}")
        self.what = what
        self.mend = mend


class Misused(Mendable):
    """What is asked for on the command line contradicts itself or has no meaning; status 2."""


class BackendUnavailable(Mendable):
    """A back-end, its library or its device is not on this machine; the remedy installs it."""


class DeviceLostError(RuntimeError):
    """This process cannot use its device any more; another process can."""


class UnreadableError(ValueError):
    """A token that is not what its place asks for; the caller keeps it and reads on."""


class ParseError(ValueError):
    """A whole line that is no record of its kind.

    Attributes:
        reason: One of a few words, fit for a metric label: ``empty``, ``noise`` …
        line: The line, verbatim.
    """

    def __init__(self, reason: str, line: str) -> None:
        super().__init__(f"{reason}: {line[:120]!r}")
        self.reason = reason
        self.line = line
