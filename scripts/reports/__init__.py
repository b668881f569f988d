"""Public reports of what went wrong elsewhere, run against this server."""
