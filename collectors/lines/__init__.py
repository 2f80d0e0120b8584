"""Sources of stamped lines: program, socket, pipe, recorded log."""
