"""Everything that touches the machine: sources of stamped lines, and the records made of them."""
