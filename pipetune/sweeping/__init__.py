"""The sweep as a program: options, set-up, loop, resume, result. No torch, no printing."""
