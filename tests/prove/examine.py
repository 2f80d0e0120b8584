"""``tegrascope prove`` on a played board: ``python -m tests.prove.examine ROOT FILE``."""

import sys
from argparse import Namespace
from pathlib import Path

from tegrascope.workbench.commands.prove import examine

from .boards import board_at

if __name__ == "__main__":
    root, file = map(Path, sys.argv[1:])
    options = Namespace(output=file, no_sudo=False, quick=False, allow_changes=True, anyway=False)
    sys.exit(examine(options, board_at(root), root / "state/prove"))
