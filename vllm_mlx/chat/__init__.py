"""From conversations to token ids and back: render, tokenize, detokenize, split."""
