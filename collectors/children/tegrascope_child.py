"""Runs a module of ours in a child process that people recognise in ``ps``, ``top`` and ``htop``.

``program.python_child`` alone starts it, as a script: its arguments are the name of the child, the
module, the import path of the parent, and the arguments of the module.
"""

import os
import sys

# The kernel keeps 15 characters, so only the last word of the name follows: ``tegrascope dla0``.
_PROGRAM, _LONGEST = "tegrascope", 15


def main() -> None:
    """Run the module as ``python -m`` does, but without the current directory on its path."""
    name, module, parent_path = sys.argv[1:4]
    del sys.argv[1:4]
    if sys.version_info < (3, 11):
        # Without ``-P``, which is newer, Python puts the directory of this file in front.
        del sys.path[0]
    own_path = [os.path.abspath(entry) for entry in sys.path if entry]  # noqa: PTH100 - imports nothing
    sys.path[:] = dict.fromkeys([*own_path, *parent_path.split(os.pathsep)])
    short_name = f"{_PROGRAM} {name.split()[-1].removeprefix(f'{_PROGRAM}-')}"
    try:
        with open("/proc/self/comm", "w") as comm:  # noqa: PTH123 - imports nothing
            comm.write(short_name[:_LONGEST])
    except OSError:
        pass  # /proc is hidden; the arguments have the name too
    import runpy

    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
