"""Reads the web configuration file; without asyncio, since it says what of that is needed."""

from dataclasses import dataclass
from pathlib import Path

from .settings.file import ConfigError, SettingsFile, read_settings
from .web_config import WebConfig


@dataclass(frozen=True)
class WebFile:
    """The file as it was read.

    Attributes:
        path: Where it is.
        text: What was in it.
        said: What that means.
    """

    path: Path
    text: bytes
    said: SettingsFile[WebConfig]

    @property
    def config(self) -> WebConfig:
        """Its keys."""
        return self.said.settings


def read_web_file(path: Path) -> WebFile:
    """Read and validate the file, but not what it names.

    Raises:
        ConfigError: It can't be read, or says something that is not so, or cannot be here.
    """
    return parse_web_file(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Return what is in the file.

    Raises:
        ConfigError: It can't be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(path, [f"{path}: {error.strerror}; name a YAML file"]) from None


def parse_web_file(text: bytes, path: Path) -> WebFile:
    """Validate what is in the file.

    Raises:
        ConfigError: It says something that is not so, or cannot be here.
    """
    try:
        return WebFile(path, text, read_settings(text.decode(), path, WebConfig))
    except UnicodeDecodeError:
        raise ConfigError(path, [f"{path}: is not UTF-8 text; name a YAML file"]) from None


def check_web_file(path: Path) -> WebConfig:
    """Do all that a start would: read the file, and make TLS of the certificates that it names.

    Raises:
        Mendable: A start would be refused.
    """
    file = read_web_file(path)
    if file.config.has_tls:
        from .tls import make_context, read_pems

        make_context(file.said, read_pems(file.said))
    if file.config.basic_auth_users:
        from .basic_auth import load_bcrypt

        load_bcrypt()
    return file.config
