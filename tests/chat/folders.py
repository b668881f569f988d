"""Small model folders: a byte-level tokenizer with a few merges, a family's control tokens, a chat template."""

import json
import os
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("VLLM_MLX_TEST_DATA", ROOT.parent / "shared"))
OWN = Path(__file__).parent / "templates"

# name of a template in SHARED: (special tokens, other added tokens, bos, eos)
THINK = ("<think>", "</think>")
M2 = (("]~!b[", "]~b]", "[e~["), (*THINK, "<minimax:tool_call>", "</minimax:tool_call>"), "]~!b[", "[e~[")
M3 = (
    ("]~!b[", "]~b]", "[e~[", "]<]image[>["),
    ("]<]minimax[>[", "<mm:think>", "</mm:think>"),
    "]~!b[",
    "[e~[",
)
QWEN = (
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    (*THINK, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    None,
    "<|im_end|>",
)
DEEPSEEK = (
    ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    (*THINK, "｜DSML｜"),
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
)
GLM = (
    ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    (*THINK, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
     "<tool_response>", "</tool_response>"),
    None,
    "<|endoftext|>",
)  # fmt: skip
KIMI = (
    ("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    (*THINK, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
     "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    "[BOS]",
    "<|im_end|>",
)  # fmt: skip
TOKENS = {
    "MiniMax-M2": M2,
    "MiniMax-M2.1": M2,
    "MiniMax-M2.5": M2,
    "MiniMax-M2.7": M2,
    "MiniMax-M3": M3,
    "Qwen3-0.6B": QWEN,
    "Qwen3.5-0.8B": QWEN,
    "Qwen3.5-4B": QWEN,
    "DeepSeek-V4": DEEPSEEK,
    "GLM-4.7-Flash": GLM,
    "Kimi-K2.5": KIMI,
}
# Runs of line breaks are one piece, as in all of these families.
SPLIT = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXTS = [
    "the tool call of the weather in the file\n\n",
    "\n\n\n1.00 </ <parameter name= think> ：語 naïve é 🙂 <response>",
] * 3


def tokenizer(special: tuple[str, ...], added: tuple[str, ...]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False))
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    return made


def make_folder(folder: Path, template: str, tokens: tuple[tuple[str, ...], tuple[str, ...], str | None, str]) -> Path:
    special, added, bos, eos = tokens
    made = tokenizer(special, added)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    write(folder / "tokenizer_config.json", {"bos_token": bos, "eos_token": {"content": eos}})
    write(folder / "config.json", {"max_position_embeddings": 4096, "model_type": "test"})
    write(folder / "generation_config.json", {"temperature": 0.7, "top_k": 40, "eos_token_id": [made.token_to_id(eos)]})
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def real_template(name: str) -> str | None:
    path = SHARED / "templates" / f"{name}.jinja"
    return path.read_text(encoding="utf-8") if path.is_file() else None
