"""Text in, typed records out; nothing here touches the machine."""
