"""``tegrascope inspect``: whether a model is ready for the DLA, without one."""
