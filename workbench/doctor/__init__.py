"""``tegrascope doctor``: checks of the machine and its task, each with a finding and a remedy."""
