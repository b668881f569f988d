"""HTTP: one file a protocol, JSON at the edge and typed events inside."""
