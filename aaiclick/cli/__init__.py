"""The command line: one file per noun, each loaded only when its command is called."""
