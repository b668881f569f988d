"""How the built-in model is made: data, tokenizer, training, export, evaluation."""
