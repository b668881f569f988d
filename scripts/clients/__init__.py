"""Client libraries against recorded output: an agent turn with a tool, and a call that was cut."""
