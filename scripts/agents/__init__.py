"""Coding agents against recorded output: a task that runs a shell tool and reports what it said."""
