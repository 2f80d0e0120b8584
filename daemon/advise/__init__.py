"""``tegrascope advise``: which accelerator for which model, by what was measured."""
