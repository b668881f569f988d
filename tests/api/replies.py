"""Raw model output that every protocol must carry, and the ways of cutting it."""

import base64

CALL = (
    '<minimax:tool_call>\n<invoke name="write_file">\n<parameter name="path">a.txt</parameter>\n'
    '<parameter name="content">  x\n</parameter>\n<parameter name="mode">1.00</parameter>\n</invoke>\n'
    '<invoke name="write_file">\n</invoke>\n</minimax:tool_call>'
)
THOUGHT = "Let me see.\n</think>\n\n"
CUT = THOUGHT + "Now.\n" + CALL[:90]

REPLIES = {
    "text": THOUGHT + "Hello, wörld.",
    "calls": THOUGHT + "I write.\n" + CALL,
    "only calls": THOUGHT + CALL,
    "text around calls": THOUGHT + "I write.\n" + CALL + "\nWritten.",
    "call inside the thought": "Let me see.\n" + CALL,
    "second thought": THOUGHT + "Well.\n<think>\nOr else.\n</think>\n\nYes.",
    "thought alone": "Let me",
    "nothing": "",
}

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "number"}},
}


def cuts(text):
    encoded = [base64.b64encode(bytes([byte])).decode() for byte in text.encode()]
    return {"whole": [text], "characters": list(text), "bytes": [{"b64": one} for one in encoded]}
