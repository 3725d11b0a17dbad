"""The command line: one file per command. Parse, call the library, render, return an exit code; nothing else."""
