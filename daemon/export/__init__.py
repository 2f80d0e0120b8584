"""The metric page and the state it is made from. No measuring, no HTTP."""
