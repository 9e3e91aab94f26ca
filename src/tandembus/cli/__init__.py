"""The `tandembus` command: one module per command."""
