"""The configuration file becomes a Config, or a list of errors that each name their line."""

from pathlib import Path

from .config import Config
from .settings_file import ConfigError, read_settings, read_text

__all__ = ["ConfigError", "load_config", "parse_config"]


def load_config(path: Path) -> Config:
    """Read and validate a file.

    Args:
        path: YAML; an empty file is the default configuration.

    Raises:
        ConfigError: It can't be read, is no YAML, or says something that is not so.
    """
    return parse_config(read_text(path), path)


def parse_config(text: str, path: Path) -> Config:
    """Validate the text of a file; ``path`` stands in the errors."""
    return read_settings(text, path, Config).settings
