"""``python -m tegrascope``, and the program ``tegrascope``."""

import sys


def main() -> int:
    """Run one command and return its status.

    The command line is imported here, so that Ctrl-C ends the program without a traceback from its
    first moment on.
    """
    try:
        from .workbench.cli import main as run_command
    except KeyboardInterrupt:
        return 1
    return run_command()


if __name__ == "__main__":
    sys.exit(main())
