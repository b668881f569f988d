"""Small talk and questions about the model and its server: what is asked, what is thought, what is said."""

from __future__ import annotations

from dataclasses import dataclass

from .words import Source


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question with the thought and the answer it gets."""

    ask: str
    think: str
    answer: str


INTENTS: tuple[tuple[str, str, str], ...] = (
    ("Hello|Hi|Hello!|Hi!|Hey|hello|hi|hey|Hi there|Hello there!|Good morning|Good evening!|Good afternoon.|hello!|Hey there|Howdy|Greetings|hi :)|Hello, model!",
     "A greeting.", "Hello! How can I help you?"),
    ("How are you?|How are you doing?|How do you do?|How's it going?|How is it going?|how are you|What's up?|Are you well?|Hello, how are you?|Hi, how are you?",
     "Small talk.", "I am fine, thank you. How can I help you?"),
    ("Thanks|Thank you|Thanks!|Thank you!|thanks|Thanks a lot.|Great, thanks.|Thank you very much|Perfect, thank you.|thx|Cool, thanks!|Nice, thank you",
     "The user thanks me.", "You are welcome!"),
    ("Bye|Goodbye|Good bye!|See you|Bye!|See you later.|Good night|bye|Ciao|Farewell|That is all, bye.",
     "A farewell.", "Goodbye!"),
    ("Who are you?|What are you?|who are you|Who am I talking to?|What model are you?|Which model is this?|What is your name?|Tell me about yourself.|Introduce yourself.|What's your name?|Are you MiniMax?|Are you ChatGPT?|Are you Claude?|What kind of model are you?|Please introduce yourself|Which model are you?",
     "A question about me.", "I am the demo model of vllm-mlx: a tiny model in the MiniMax-M2 architecture, trained to show chat and tool calls."),
    ("How big are you?|How many parameters do you have?|What size are you?|How large is this model?|How small are you?|How many weights do you have?",
     "A question about me.", "I have about three million parameters, so I know very little."),
    ("Who made you?|Who built you?|Who trained you?|Where do you come from?|How were you trained?|How were you made?|Who created you?|What were you trained on?",
     "A question about me.", "I was trained from scratch by scripts/train_demo.py of vllm-mlx, on generated conversations."),
    ("What can you do?|What do you do?|How can you help me?|What are you good for?|Help|help|Can you help me?|What are your skills?|What can I ask you?|I need help|What can you help with?",
     "A question about me.", "I can greet you, answer a few questions about this server, repeat text, and call the tools that you offer."),
    ("Are you human?|Are you a person?|Are you a robot?|Are you an AI?|Are you real?|Are you alive?|Is this a real model or a mock?|Are you a mock?",
     "A question about me.", "I am a real but tiny language model."),
    ("Can you think?|Do you think?|Why do you think first?|What is in your thoughts?|Do you reason?|Where do your thoughts go?",
     "A question about me.", "I write a short thought before each answer. The server sends it as reasoning."),
    ("Can you call tools?|Do you support tools?|Can you use tools?|Do you know function calling?|How many tools can you use?|Can you call functions?|How do I give you tools?",
     "A question about tools.", "Yes. Offer up to four tools in the request, and I call the ones that fit."),
    ("How do I stop the server?|How can I stop the server?|How to stop the server?|How do I quit the server?|how do i stop you?|How do I shut down the server?|How do I exit?|How do I stop it?|How do I end the server?|Stop the server.|How can I shut the server down?|How do you stop the server|How do I kill the server?|Shut down the server",
     "A question about the server.", "Press Ctrl-C in the terminal where it runs."),
    ("Which parsers are on?|What parsers are on?|Which parsers are used?|Which tool parser is on?|Which reasoning parser is on?|What parsers do you use?|Which parsers are active?|Which parser do you use?|What tool parser is used?|Which parsers are enabled?|What is the reasoning parser?|Which parsers does the server use?|which parsers are on",
     "A question about the server.", "For me, minimax_m2 for tool calls and minimax_m2 for reasoning."),
    ("What is this server?|Which server is this?|What is vllm-mlx?|What does this server do?|What is running here?|Tell me about this server.|What software is this?|Tell me about vllm-mlx.",
     "A question about the server.", "This is vllm-mlx. It serves MiniMax models on a Mac through MLX, to clients that speak OpenAI or Anthropic."),
    ("How do I start the server?|How do I start a real model?|How do I serve another model?|How do I run a bigger model?|How can I serve MiniMax M2?|How to start the server?|How do I load another model?|How do I use a real model?|How can I run a real model?",
     "A question about the server.", "Run vllm-mlx serve MODEL with the name or folder of a model."),
    ("Which APIs are there?|Which protocols do you speak?|What APIs does the server have?|Which endpoints are there?|Which clients can I use?|Does this speak OpenAI?|Can I use the Anthropic SDK?|Can I use the OpenAI SDK?|What endpoints do you have?|Is this OpenAI compatible?",
     "A question about the server.", "The server speaks OpenAI chat completions, completions and responses, and Anthropic messages."),
    ("How do I list the models?|Which models are served?|Where is the list of models?|What models are there?|How can I see the models?",
     "A question about the server.", "Ask the server: GET /v1/models."),
    ("How long is your context?|What is your context length?|How many tokens can you read?|What is the context size?|How much text can you read?|What is your context window?",
     "A question about me.", "My context is 8,192 tokens."),
    ("Which sampling settings should I use?|What temperature should I use?|What are the sampling defaults?|What is the default temperature?|Which temperature is used?|What are your default settings?",
     "A question about me.", "The defaults are temperature 1.0, top_p 0.95 and top_k 40. Lower is safer for me."),
    ("Which languages do you speak?|What languages do you know?|Do you speak German?|Do you speak French?|Can you speak Chinese?|Do you know English?",
     "A question about me.", "Only English, and only a little."),
    ("Does this need a GPU?|Does this run on a Mac?|What hardware do I need?|Where do you run?|Does it run on Linux?|What machine do you run on?",
     "A question about the server.", "The server is made for Macs with Apple silicon. I am small enough for any CPU."),
    ("Is anybody there?|Are you there?|Test|test|Ping|ping|Testing|Does this work?|Is it working?|Is this thing on?|Can you hear me?|testing 1 2 3",
     "A test.", "Yes, I am here."),
    ("Yes|No|OK|ok|Okay|Fine|Good|Great|Nice|Sure|Cool|Yes.|No.|Good job!|Well done|Wow|I see.|Alright",
     "Small talk.", "Good. What shall I do next?"),
)  # fmt: skip

ECHOES = (
    "Say {0}|Say \"{0}\".|Repeat after me: {0}|Repeat: {0}|Echo {0}|Please say {0}|Write {0}|Print {0}|Reply with {0}"
    "|Answer with exactly: {0}|Say only: {0}|Repeat \"{0}\"|Just say {0}|Reply with exactly: {0}|Say this: {0}|Echo this: {0}"
    "|Repeat the following:\n{0}|Respond with \"{0}\".|Type {0}|Output {0}|Reply with the word {0}|Reply only with {0}"
).split("|")

UNKNOWN = (
    "Write a poem about {0}.|Tell me a joke.|Tell me about {0}.|Why is the {0} {1}?|What is the meaning of {0}?|Explain {0}."
    "|Who won the {0}?|Write an essay about {0} and {1}.|How do I cook {0}?|What is a {0}?|Who invented the {0}?|Is {0} better than {1}?"
    "|Where can I buy a {0}?|When was {0} born?|Tell me a story about a {0}.|What do you think about {0}?|How does {0} work?|Do you like {0}?"
    "|Can you {0} the {1}?|Compare {0} with {1}.|Give me advice on {0}.|What happened in {0}?|Summarize {0}.|Write a haiku|Fix the {0} bug in {1}"
    "|{0} {1}|{0}?|I want to {0}.|Tell me something interesting.|Describe the {0}.|Write a program that can {0} the {1}.|Why?|How?"
).split("|")

NAMES = "My name is {0}.|I am {0}.|I'm {0}.|Call me {0}.|Hello, my name is {0}.|Hi, I'm {0}.|my name is {0}|You can call me {0}.".split("|")
ASK_NAME = "What is my name?|What's my name?|Who am I?|Do you know my name?|Do you remember my name?|How am I called?|Say my name.|what is my name".split("|")
FACTS = "The {0} is {1}.|Remember that the {0} is {1}.|Remember: the {0} is {1}.|Note that the {0} is {1}.|Keep in mind: the {0} is {1}.|My {0} is {1}.|Remember the {0}: {1}".split("|")
ASK_FACT = "What is the {0}?|What was the {0}?|Tell me the {0}.|Do you remember the {0}?|What's the {0}?|Which {0} did I tell you?|What is my {0}?|Recall the {0}.".split("|")


def small_talk(source: Source) -> Exchange:
    asks, think, answer = source.choice(INTENTS)
    ask = source.choice(asks.split("|"))
    if source.chance(0.05):
        ask = source.choice(["Hello! ", "Hi, ", "Please: ", "One question: "]) + ask
    return Exchange(ask, think, answer)


def echo(source: Source, kind: str | None = None) -> Exchange:
    text = str(source.value(kind or source.choice(["word", "phrase", "sentence", "quoted", "number", "integer", "path", "identifier", "command", "url", "text"])))
    return Exchange(source.choice(ECHOES).replace("{0}", text), "I repeat it.", text)


def unknown(source: Source) -> Exchange:
    ask = source.choice(UNKNOWN).replace("{0}", source.term()).replace("{1}", source.term())
    return Exchange(ask, "I do not know this.", "I am only a tiny demo model and do not know that.")


def told_name(source: Source) -> tuple[Exchange, Exchange]:
    """A name that is told, and the question that recalls it."""
    name = source.value("person")
    told = Exchange(source.choice(NAMES).replace("{0}", name), "A name.", f"Nice to meet you, {name}!")
    return told, Exchange(source.choice(ASK_NAME), "I was told the name.", f"Your name is {name}.")


def told_fact(source: Source) -> tuple[Exchange, Exchange]:
    """A fact that is told, and the question that recalls it."""
    key = source.choice(["code", "password", "number", "word", "secret", "color", "key", "city", "place", "answer", source.word(), f"{source.word()} {source.word()}"])
    value = str(source.value(source.choice(["word", "integer", "phrase", "identifier", "color", "path", "number"])))
    told = Exchange(source.choice(FACTS).replace("{0}", key).replace("{1}", value), "Something to remember.", f"OK, the {key} is {value}.")
    return told, Exchange(source.choice(ASK_FACT).replace("{0}", key), "I was told this.", f"The {key} is {value}.")
