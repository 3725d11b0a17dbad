"""The watch as a program: options, set-up, watcher, run. No printing."""
