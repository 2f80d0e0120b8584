"""What each command is asked with: one module a command, light enough to import them all."""
