"""Faults at every file operation: a warm process forks a command, one of its operations fails or is its last, and another
forked command goes on. What comes out must be what an undisturbed run gives."""
