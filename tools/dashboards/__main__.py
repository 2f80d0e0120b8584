"""Write the dashboards: ``make dashboards``."""

from pathlib import Path

from .catalog import DASHBOARDS
from .render import render

FOLDER = Path(__file__).parents[2] / "grafana/dashboards"


def main() -> None:
    """Write every dashboard, and remove what is none of them any more."""
    files = {FOLDER / dashboard.file: render(dashboard) for dashboard in DASHBOARDS}
    for path in set(FOLDER.glob("*.json")) - set(files):
        path.unlink()
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
