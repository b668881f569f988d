"""From a conversation to the ids of its prompt: normalised, marked, rendered, and tokenized as far as it is new."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tool_parsers.json_text import read_json
from vllm_mlx.chat.conversation import Conversation, Message, lift_thought, normalise
from vllm_mlx.chat.family import thinking_kwargs
from vllm_mlx.chat.marks import END, MARK, Marked, Spellings, unmark
from vllm_mlx.chat.template import ChatTemplate, TemplateError
from vllm_mlx.chat.thoughts import Thoughts
from vllm_mlx.chat.tokenizer import Tokenizer
from vllm_mlx.chat.transcript import Beginning, Cut, Transcripts

# A prompt is cut behind its last control tokens (the next one may leave out an empty thought, no more) and behind its
# first turns (instructions may take two).
_LAST_CUTS = 3
_FIRST_CUTS = 2


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation. `thinking_open`: its tail leaves a thought open.

    `text` is what the template writes; where the ids are those that the model wrote, theirs may differ in layout.
    `restored`: how many messages got a thought back that their client had left out.
    """

    text: str
    ids: list[int]
    thinking_open: bool
    marked: str = field(repr=False)
    restored: int = 0


class PromptWriter:
    """Renders conversations for one model, and remembers them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        thought: tuple[str, str] | None,
        markers: Sequence[str],
        ends: Sequence[str],
        late_system: bool,
        restore_reasoning: bool = True,
    ) -> None:
        """
        Args:
            thought: the markers of thoughts.
            markers: all markers that templates may look for in a text.
            ends: the tokens that end a turn.
            late_system: the template writes later system messages in their place.
            restore_reasoning: thoughts that clients leave out are put back.
        """
        self._tokenizer = tokenizer
        self._template = template
        self._thought = thought
        self._ends = ends
        self._late_system = late_system
        self._spellings = Spellings((*tokenizer.added, *markers))
        self._transcripts = Transcripts(restore_reasoning=restore_reasoning)
        self._thoughts = Thoughts() if restore_reasoning else None

    def render(self, conversation: Conversation) -> Prompt:
        """Renders and tokenizes.

        Raises:
            TemplateError: the template refuses the conversation.
        """
        normalised = self._normalised(conversation)
        prepared = self._restored(normalised)
        text = self._marked(prepared)
        known, ids = self._tokenized(text)
        if self._tokenizer.concatenates:
            cuts = [*self._last_cuts(text, ids), *(() if known else self._first_cuts(text, ids))]
            self._transcripts.learn(text, ids, cuts)
        whole = unmark(text)
        pairs = zip(normalised.messages, prepared.messages, strict=True)
        restored = sum(bool(after.reasoning) > bool(before.reasoning) for before, after in pairs)
        return Prompt(whole.text, ids, self._thinking_open(whole), text, restored)

    def remember_thought(self, conversation: Conversation, reply: Message) -> None:
        """Keeps the thought of a reply, whole or not: when it comes back without it, it is put back."""
        if self._thoughts is not None:
            self._thoughts.remember(self._normalised(conversation).messages, self._lifted(reply))

    def remember(
        self, conversation: Conversation, prompt: Prompt, reply: Message, tokens: Sequence[int], *, cut: bool = False
    ) -> None:
        """Keeps a reply: when it comes back, `tokens` take the place of what the template makes of it.

        Args:
            conversation: what `prompt` was rendered from.
            prompt: what the model was given.
            reply: the message as the client got it, with the calls' ids.
            tokens: what the model wrote, all of it and no more: without its stop token, not cut by a stop string.
            cut: the reply hit its limit. It is kept where the template writes exactly what there is of it.
        """
        if conversation.continue_final_message or not self._tokenizer.concatenates:
            return
        prepared = self._restored(self._normalised(conversation))
        reply = self._lifted(reply)
        history = replace(prepared, messages=(*prepared.messages, reply), add_generation_prompt=False)
        text = self._ended(history, cut=cut)
        if cut and (text is None or unmark(text).text != prompt.text + self._tokenizer.decode(tokens)):
            return
        assert text is not None
        self._transcripts.remember(prepared, reply)
        thought = self._spellings.mark((reply.reasoning or "").strip())
        if thought and text.count(thought) == prompt.marked.count(thought):
            return  # The template leaves this thought out: then it must not come back with the tokens.
        ids = [*prompt.ids, *tokens]
        self._transcripts.learn(text, ids, [Cut(len(text), len(ids), closed=False)])

    def _ended(self, history: Conversation, *, cut: bool) -> str | None:
        """The marked text of a history up to where its last reply ends; None if a cut one cannot be written so."""
        if cut and not history.messages[-1].tool_calls:
            try:
                return self._marked(replace(history, continue_final_message=True))
            except TemplateError:
                return None
        text = self._marked(history)
        return text[: self.end_of_turn(text)]

    def upcoming(self, conversation: Conversation, reply: Message) -> list[int]:
        """The ids that the next prompt begins with, should the user speak next: what can be prefilled before.

        Templates write a turn that is past in another way than the turn that goes on.
        """
        prepared = self._restored(self._normalised(conversation))
        past = (*prepared.messages, self._lifted(reply))
        first, second = (
            self._tokenized(self._marked(replace(prepared, messages=(*past, Message("user", word)))))[1]
            for word in ("a", "b")
        )
        shared = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
        return first[:shared]

    def _tokenized(self, text: str) -> tuple[Beginning | None, list[int]]:
        """A marked text's ids, and the known beginning that they were taken from."""
        for known in self._transcripts.beginnings(text):
            if self._fits(known, text):
                return known, known.tokens + self._tokenizer.encode_marked(unmark(text[known.length :]))
        return None, self._tokenizer.encode_marked(unmark(text))

    def end_of_turn(self, text: str) -> int:
        """Where the last message of a rendered history ends, without the token that ends its turn."""
        bare = text.rstrip("\n")
        end = next((end for end in self._ends if bare.endswith(end)), None)
        return len(text) if end is None else len(bare) - len(end)

    def _lifted(self, reply: Message) -> Message:
        return lift_thought(reply, self._thought) if self._thought else reply

    def _normalised(self, conversation: Conversation) -> Conversation:
        messages = normalise(conversation.messages, thought=self._thought, late_system=self._late_system)
        if not messages:
            raise TemplateError("a conversation needs at least one message")
        return replace(conversation, messages=tuple(messages))

    def _restored(self, normalised: Conversation) -> Conversation:
        if self._thoughts is not None:
            normalised = replace(normalised, messages=self._thoughts.restore(normalised.messages))
        return self._transcripts.restore(normalised)

    def _marked(self, conversation: Conversation) -> str:
        """The rendered text of a prepared conversation, with its marks."""
        shaped = [self._shaped(message, at) for at, message in enumerate(conversation.messages)]
        if conversation.continue_final_message:
            _leave_open(shaped[-1])
        kwargs = thinking_kwargs(self._template, conversation.template_kwargs)
        text = self._template.render(
            shaped,
            [self._spellings.mark_schema(tool.schema) for tool in conversation.offered],
            add_generation_prompt=conversation.add_generation_prompt and not conversation.continue_final_message,
            kwargs=self._spellings.mark_all(kwargs, edges=False),
        )
        if conversation.continue_final_message:
            text, found, _ = text.rpartition(END)
            if not found:
                raise TemplateError("the chat template does not write the message that is to be continued")
        return text

    def _shaped(self, message: Message, at: int) -> dict[str, Any]:
        """A message as templates read it, its texts marked."""
        mark = self._spellings.mark
        shaped: dict[str, Any] = {"role": message.role, "content": mark(message.content)}
        if message.name:
            shaped["name"] = mark(message.name)
        if message.role == "assistant":
            # Always a string: a template that finds none would look for thoughts inside the content.
            shaped["reasoning_content"] = mark(message.reasoning or "")
        if message.tool_calls:
            shaped["tool_calls"] = [
                {
                    "id": mark(call.id),
                    "type": "function",
                    "function": {
                        "name": mark(call.name),
                        "arguments": self._spellings.mark_all(_arguments(call.arguments, f"messages[{at}]")),
                    },
                }
                for call in message.tool_calls
            ]
        if message.role == "tool":
            shaped["tool_call_id"] = mark(message.tool_call_id or "")
        return shaped

    def _thinking_open(self, marked: Marked) -> bool:
        """Looks only behind the last turn token: the last thinking marker there, if one, is the opener."""
        if self._thought is None:
            return False
        opener, closer = self._thought
        start = max(_last(marked, opener), _last(marked, closer))
        if start < 0 or not marked.text.startswith(opener, start):
            return False
        tail = self._tokenizer.tokens_in(marked, start + len(opener))
        return not any(token_id in self._tokenizer.special_ids for _, _, token_id in tail)

    def _fits(self, known: Beginning, text: str) -> bool:
        """Whether a known beginning can be followed by the rest of this text."""
        if text.startswith(MARK, known.length):
            return False
        if known.closed or known.length == len(text):
            return True
        following = next(self._tokenizer.tokens_in(unmark(text[known.length :])), None)
        return following is not None and following[0] == 0

    def _last_cuts(self, text: str, ids: Sequence[int]) -> Iterator[Cut]:
        """The last places behind a control token, where a later prompt may part from this one."""
        end, found = len(text), 0
        for index in range(len(ids) - 1, -1, -1):
            token = self._tokenizer.control.get(ids[index])
            if token is None:
                continue
            start = text.rfind(token, 0, end)
            end = start + len(token)
            if start < 0 or self._tokenizer.decode(ids[index + 1 :]) != unmark(text[end:]).text:
                return
            yield Cut(end, index + 1, closed=True)
            end, found = start, found + 1
            if found == _LAST_CUTS:
                return

    def _first_cuts(self, text: str, ids: Sequence[int]) -> Iterator[Cut]:
        """The ends of the first turns: what a new conversation with the same instructions and tools shares."""
        end, found = 0, 0
        for index, token_id in enumerate(ids):
            token = self._tokenizer.control.get(token_id)
            if token is None or token not in self._ends:
                continue
            start = text.find(token, end)
            end = start + len(token)
            if start < 0 or self._tokenizer.decode(ids[: index + 1]) != unmark(text[:end]).text:
                return
            yield Cut(end, index + 1, closed=True)
            found += 1
            if found == _FIRST_CUTS:
                return


def _leave_open(shaped: dict[str, Any]) -> None:
    """Marks where the last message breaks off: in its text, or in its thought if it has no text yet."""
    if "tool_calls" in shaped:
        raise TemplateError("a message with tool calls cannot be continued")
    field = "reasoning_content" if not shaped["content"] and shaped.get("reasoning_content") else "content"
    shaped[field] += END


def _arguments(text: str, where: str) -> dict[str, Any]:
    try:
        arguments = read_json(text) if text.strip() else {}
    except ValueError as error:
        raise TemplateError(f"{where}: the arguments of a tool call are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise TemplateError(f"{where}: the arguments of a tool call must be a JSON object")
    return arguments


def _last(marked: Marked, word: str) -> int:
    at = marked.text.rfind(word)
    while at >= 0 and marked.holds_data(at, at + len(word)):
        at = marked.text.rfind(word, 0, at + len(word) - 1)
    return at
