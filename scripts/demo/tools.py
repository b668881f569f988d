"""Tools for the generated data: families with a known purpose, and wholly random ones.

A `Task` is a tool with a request that asks for one call of it: what the user says, which
arguments that names, and what the tool then returns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .words import Source

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str  # string, integer, number, boolean, strings, integers
    kind: str  # a value kind of `Source`
    concept: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A purpose that many tools have: `asks` are its requests, {slots} its parameters."""

    verbs: str
    nouns: str
    descriptions: str
    parameters: tuple[tuple[str, str, str], ...]  # "name synonym ...", type, kind
    asks: str
    result: str = "any"
    canonical: str = ""


FAMILIES: dict[str, Family] = {
    "weather": Family(
        "get fetch check show lookup query find", "weather forecast climate conditions temperature",
        "Get the weather for a city.|Look up the current weather.|Current weather and temperature in a place.|Weather forecast for a location.",
        (("city location place town", "string", "city"),),
        "What is the weather in {0}?|What's the weather in {0}?|How is the weather in {0}?|How's the weather in {0} today?|Weather in {0}?|Tell me the weather in {0}.|What is the temperature in {0}?|Give me the forecast for {0}.|Is it raining in {0}?|I need the weather for {0}.|Check the weather in {0}, please.|What will the weather be like in {0}?|Look up the weather in {0}.",
        "weather", "get_weather weather"),
    "read": Family(
        "read open load cat view get show", "file document text file_contents",
        "Read a file.|Read the contents of a file.|Reads a text file from disk and returns it.|Returns the content of a file.",
        (("path file_path filename file filepath", "string", "path"),),
        "Read {0}.|Read the file {0}.|Show me {0}.|Open {0}.|What is in {0}?|What's in {0}?|What does {0} say?|Print the contents of {0}.|Please read {0} for me.|Can you open {0}?|Show the file {0}.|Let me see {0}.|Have a look at {0}.",
        "file", "read_file read open_file"),
    "write": Family(
        "write create save make put store", "file document text new_file",
        "Write a file.|Write text to a file.|Creates a file with the given content.|Save content to a file on disk.",
        (("path file_path filename file filepath", "string", "path"), ("content text contents data body", "string", "text")),
        "Write a file {0} with this content:\n{1}|Create {0} with this content:\n{1}|Save this as {0}:\n\n{1}|Write this to {0}:\n{1}|Put this into {0}:\n```\n{1}\n```|Create the file {0}:\n```\n{1}\n```|Write the following to {0}:\n\n{1}|Make a file called {0} that contains:\n{1}|Please create {0}:\n\n{1}|Write {0} with the content\n\n{1}|Save the following text in {0}:\n```\n{1}\n```",
        "done", "write_file write create_file save_file"),
    "note": Family(
        "write save put store", "file text line",
        "Write a file.|Write text to a file.|Save content to a file.",
        (("path file_path filename file", "string", "path"), ("content text contents data", "string", "sentence")),
        "Write {1} to {0}.|Write \"{1}\" to {0}.|Write \"{1}\" into the file {0}.|Save \"{1}\" as {0}.|Create {0} with the text \"{1}\".|Put \"{1}\" in {0}.|Write a file {0} containing \"{1}\".|Write a file {0} that says {1}",
        "done", "write_file write"),
    "edit": Family(
        "edit replace patch change update modify", "file text string in_file",
        "Replace text in a file.|Edit a file by replacing a string.|Finds old text in a file and puts new text in its place.",
        (("path file_path filename file", "string", "path"), ("old_string old old_text search find", "string", "quoted"), ("new_string new new_text replacement", "string", "quoted")),
        "In {0}, replace {1} with {2}|In {0}, change \"{1}\" to \"{2}\".|Edit {0}: replace \"{1}\" by \"{2}\".|Replace \"{1}\" with \"{2}\" in {0}.|Change \"{1}\" to \"{2}\" in the file {0}.|Update {0}: \"{1}\" should become \"{2}\".|In the file {0} replace\n{1}\nwith\n{2}",
        "done", "edit edit_file str_replace"),
    "list": Family(
        "list show get ls browse scan", "files directory folder dir entries",
        "List the files in a directory.|List a folder.|Shows what is in a directory.",
        (("path directory folder dir", "string", "folder"),),
        "List the files in {0}.|What files are in {0}?|Show the files in {0}.|List {0}.|What is in the folder {0}?|Show me the directory {0}.|Which files does {0} have?",
        "names", "list_files ls list_directory"),
    "delete": Family(
        "delete remove erase drop trash", "file path item",
        "Delete a file.|Remove a file from disk.|Deletes the file at a path.",
        (("path file_path filename file", "string", "path"),),
        "Delete {0}.|Remove {0}.|Delete the file {0}.|Please remove the file {0}.|Get rid of {0}.|Erase {0}.",
        "done", "delete_file remove_file"),
    "move": Family(
        "move rename mv copy transfer", "file path item",
        "Move or rename a file.|Moves a file to another path.|Rename a file.",
        (("source src from old_path from_path", "string", "path"), ("destination dest to new_path to_path target", "string", "path")),
        "Move {0} to {1}.|Rename {0} to {1}.|Move the file {0} to {1}.|Please rename {0} as {1}.|Put {0} at {1}.",
        "done", "move_file"),
    "shell": Family(
        "run execute exec shell bash do", "command shell bash terminal cmd",
        "Run a shell command.|Execute a command in bash.|Runs a command and returns its output.|Execute a bash command.",
        (("command cmd script line", "string", "command"),),
        "Run {0}|Run `{0}`.|Run the command {0}|Execute {0}|Execute `{0}` please.|Run this: {0}|Run this command:\n{0}|Please run `{0}`.|In the shell, run {0}|Can you run `{0}`?|Use the shell to run {0}",
        "output", "bash run_command shell execute"),
    "search": Family(
        "search find query lookup google browse", "web internet online pages",
        "Search the web.|Search the internet for a query.|Finds web pages about a topic.",
        (("query q search_query term keywords", "string", "phrase"),),
        "Search the web for {0}.|Search for {0}.|Find pages about {0}.|Look up {0} on the web.|Google {0}.|Search the internet for \"{0}\".|Find out about {0}.|What does the web say about {0}?",
        "any", "web_search search"),
    "grep": Family(
        "grep search find match scan", "files code text pattern source",
        "Search files for a pattern.|Find a text in the files of a directory.|Searches source code for a pattern.",
        (("pattern query text regex search", "string", "word"), ("path directory folder dir", "string", "folder")),
        "Search {1} for {0}.|Find \"{0}\" in {1}.|Grep for {0} in {1}.|Where is {0} used in {1}?|Look for \"{0}\" in the folder {1}.",
        "names", "grep search_files"),
    "calculate": Family(
        "calculate compute evaluate eval solve", "expression math formula sum",
        "Evaluate an arithmetic expression.|Calculate the value of an expression.|A calculator.",
        (("expression expr formula input", "string", "expression"),),
        "What is {0}?|Calculate {0}.|Compute {0}.|How much is {0}?|Evaluate {0}.|Please work out {0}.|What's {0}?|{0} = ?",
        "number", "calculate calculator"),
    "add": Family(
        "add sum plus total", "numbers values two",
        "Add two numbers.|Returns the sum of two numbers.|Adds a and b.",
        (("a x first left num1", "number", "number"), ("b y second right num2", "number", "number")),
        "Add {0} and {1}.|What is {0} plus {1}?|Sum {0} and {1}.|What is the sum of {0} and {1}?|Please add {0} to {1}.|How much is {0} plus {1}?|What's {0} plus {1}?|What is {0} + {1}?|Add {0} and {1}, please.",
        "number", "add sum add_numbers"),
    "multiply": Family(
        "multiply times product mul", "numbers values two",
        "Multiply two numbers.|Returns the product of two numbers.|Multiplies a by b.",
        (("a x first left num1", "number", "number"), ("b y second right num2", "number", "number")),
        "Multiply {0} by {1}.|What is {0} times {1}?|Multiply {0} and {1}.|What is the product of {0} and {1}?|How much is {0} times {1}?",
        "number", "multiply"),
    "time": Family(
        "get current show what check", "time clock hour datetime",
        "Get the current time in a city.|Tells the time in a time zone or city.|Current local time of a place.",
        (("city timezone place location", "string", "city"),),
        "What time is it in {0}?|What's the time in {0}?|Tell me the time in {0}.|Current time in {0}?|How late is it in {0}?|Give me the local time in {0}.",
        "clock", "get_time get_current_time"),
    "now": Family(
        "get current show", "time date now datetime today",
        "Get the current date and time.|Returns the current time.|Tells today's date.",
        (),
        "What time is it?|What's the time?|What is the date today?|Tell me the current time.|What day is it?|Which date is it?",
        "clock", "get_time get_current_time now"),
    "mail": Family(
        "send write compose mail", "email mail message_by_mail",
        "Send an email.|Sends a mail to an address.|Write and send an e-mail.",
        (("to recipient address email", "string", "mail"), ("subject title topic", "string", "phrase"), ("body text message content", "string", "body")),
        "Send an email to {0} with the subject \"{1}\" and the text \"{2}\".|Email {0}, subject {1}, text:\n{2}|Write a mail to {0}. Subject: {1}. Body: {2}|Mail {0} about \"{1}\": {2}|Send {0} an email titled \"{1}\" that says: {2}",
        "done", "send_email send_mail"),
    "message": Family(
        "send post write text notify tell", "message chat sms note",
        "Send a message to a person.|Sends a chat message.|Text somebody.",
        (("recipient to user person name", "string", "person"), ("message text body content", "string", "sentence")),
        "Send {0} the message \"{1}\".|Tell {0}: {1}|Message {0}: {1}|Send a message to {0} that says {1}|Text {0} \"{1}\".|Let {0} know: {1}|Write to {0}: {1}",
        "done", "send_message"),
    "translate": Family(
        "translate convert", "text sentence language words",
        "Translate text into another language.|Translates a text.|Translate to a target language.",
        (("text content input source_text", "string", "phrase"), ("language target target_language to lang", "string", "language")),
        "Translate {0} to {1}.|Translate \"{0}\" into {1}.|How do you say \"{0}\" in {1}?|What is \"{0}\" in {1}?|Please translate \"{0}\" to {1}.|Say \"{0}\" in {1}.",
        "any", "translate"),
    "event": Family(
        "create add schedule make book", "event appointment meeting calendar_entry",
        "Create a calendar event.|Adds an appointment to the calendar.|Schedule a meeting.",
        (("title name summary event", "string", "phrase"), ("date day on", "string", "date"), ("time start hour at", "string", "clock")),
        "Schedule \"{0}\" on {1} at {2}.|Create an event called {0} on {1} at {2}.|Add {0} to my calendar on {1} at {2}.|Book a meeting \"{0}\" for {1} at {2}.|Put \"{0}\" in the calendar: {1}, {2}.",
        "done", "create_event"),
    "timer": Family(
        "set start create begin", "timer alarm countdown",
        "Set a timer.|Starts a timer of some minutes.|Countdown timer.",
        (("minutes duration mins length", "integer", "count"),),
        "Set a timer for {0} minutes.|Start a {0} minute timer.|Timer for {0} minutes, please.|Wake me in {0} minutes.|Set an alarm in {0} minutes.",
        "done", "set_timer"),
    "reminder": Family(
        "set create add make", "reminder todo task note",
        "Create a reminder.|Reminds the user of something at a time.|Add a reminder.",
        (("text message task what", "string", "phrase"), ("time at when hour", "string", "clock")),
        "Remind me to {0} at {1}.|Set a reminder \"{0}\" for {1}.|At {1}, remind me to {0}.|Add a reminder at {1}: {0}|Create a reminder for {1} that says {0}.",
        "done", "set_reminder create_reminder"),
    "convert": Family(
        "convert exchange change", "currency money amount rate",
        "Convert an amount between currencies.|Currency converter.|Exchanges money from one currency to another.",
        (("amount value sum", "number", "number"), ("from source from_currency base", "string", "currency"), ("to target to_currency quote", "string", "currency")),
        "Convert {0} {1} to {2}.|How much is {0} {1} in {2}?|Change {0} {1} into {2}.|What is {0} {1} in {2}?|Exchange {0} {1} for {2}.",
        "number", "convert_currency"),
    "stock": Family(
        "get fetch check lookup", "stock stock_price quote share_price",
        "Get the price of a stock.|Looks up a share price by its symbol.|Stock quotes.",
        (("symbol ticker stock code", "string", "identifier"),),
        "What is the stock price of {0}?|Get the price of {0} stock.|How much is a share of {0}?|Look up the stock {0}.|Quote for {0}?",
        "number", "get_stock_price"),
    "light": Family(
        "set switch turn control", "light lamp lights lamp_state",
        "Switch a light on or off.|Controls the light in a room.|Turn a lamp on or off.",
        (("room place location", "string", "word"), ("on state enabled power", "boolean", "boolean")),
        "Turn {1} the light in the {0}.|Switch the {0} light {1}.|Light {1} in the {0}, please.|Turn the lamp in the {0} {1}.",
        "done", "set_light"),
    "fetch": Family(
        "fetch get download open load", "url page web_page website link",
        "Fetch a web page.|Download the content of a URL.|Gets a page from the web.",
        (("url link address uri", "string", "url"),),
        "Fetch {0}|Open {0}|Get the page {0}|Download {0}|What is at {0}?|Load the page {0} please.|Read the page {0}",
        "any", "fetch fetch_url"),
    "commit": Family(
        "git commit save", "commit changes work repository",
        "Commit changes with git.|Creates a git commit.|Commit the work tree with a message.",
        (("message msg text title", "string", "phrase"),),
        "Commit with the message \"{0}\".|Commit everything: {0}|Make a commit that says \"{0}\".|git commit: {0}|Create a commit \"{0}\".",
        "output", "git_commit"),
    "random": Family(
        "random roll draw pick generate", "number integer random value",
        "Draw a random number between two bounds.|Random integer generator.|Picks a number in a range.",
        (("min low minimum start", "integer", "count"), ("max high maximum end", "integer", "count")),
        "Give me a random number between {0} and {1}.|Pick a number from {0} to {1}.|Random number between {0} and {1}?|Draw a number from {0} to {1}.|Roll a number between {0} and {1}.",
        "number", "random_number"),
    "user": Family(
        "get find lookup fetch load", "user account customer profile",
        "Get a user by id.|Looks up an account.|Find a customer by number.",
        (("user_id id uid account number", "integer", "count"),),
        "Get user {0}.|Who is user {0}?|Look up the user with id {0}.|Find account {0}.|Show me customer {0}.|Load the profile of user {0}.",
        "json", "get_user"),
    "volume": Family(
        "set change adjust", "volume loudness sound_level",
        "Set the volume.|Changes the sound level.|Adjust how loud it is.",
        (("level volume value percent", "integer", "count"),),
        "Set the volume to {0}.|Volume {0}, please.|Change the volume to {0}.|Make it {0} percent loud.|Turn the sound to {0}.",
        "done", "set_volume"),
    "sql": Family(
        "run execute query sql", "sql query database db",
        "Run an SQL query.|Query the database with SQL.|Executes a statement on the database.",
        (("query sql statement", "string", "sql"),),
        "Run the query {0}|Execute this SQL: {0}|Query the database: {0}|Run this on the database:\n{0}|Ask the database: {0}",
        "json", "run_sql query"),
    "music": Family(
        "play start listen", "music song track",
        "Play a song.|Plays music.|Start a track by title and artist.",
        (("title song track name", "string", "phrase"), ("artist by singer band", "string", "person")),
        "Play {0} by {1}.|Play \"{0}\" by {1}.|I want to hear {0} by {1}.|Start the song \"{0}\" by {1}.|Put on {0} by {1}, please.",
        "done", "play_music"),
    "tags": Family(
        "tag label mark add", "tags labels item_tags",
        "Set tags on an item.|Label an item.|Gives an item a list of tags.",
        (("item id name", "string", "identifier"), ("tags labels keywords", "strings", "words")),
        "Tag {0} with {1}.|Label {0} as {1}.|Set the tags {1} on {0}.|Give {0} the tags {1}.|Add the labels {1} to {0}.",
        "done", "add_tags"),
    "average": Family(
        "average mean sum max", "numbers values list series",
        "Average of a list of numbers.|Computes the mean of numbers.|Statistics of a list.",
        (("numbers values data items", "integers", "integers"),),
        "What is the average of {0}?|Average {0}.|Compute the mean of {0}.|Take the average of {0}.",
        "number", "average"),
}

JSON_TYPES = {
    "strings": {"type": "array", "items": {"type": "string"}},
    "integers": {"type": "array", "items": {"type": "integer"}},
}
PARAMETER_NAMES = (
    "name id value key text query path city date time count size limit offset page format mode type"
    " level user title body message url host port color unit language amount price width height speed"
    " target source category label tags items numbers enabled force verbose recursive active depth rate"
    " ratio weight score threshold timeout retries index total comment reason status version branch tag"
    " topic channel group project owner email phone street country zone start end min max step scale"
).split()
TYPE_KINDS = {
    "string": ("word", "word", "word", "phrase", "path", "city", "person", "identifier", "date", "clock", "url", "mail", "sentence", "zone", "quoted"),
    "integer": ("integer", "count"),
    "number": ("number",),
    "boolean": ("boolean",),
    "strings": ("words",),
    "integers": ("integers",),
}


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: tuple[Parameter, ...]
    schema: Schema
    family: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A request for one call: the words, the call, the result."""

    tool: Tool
    ask: str
    arguments: dict[str, Any]
    result: str
    clause: str = field(default="")  # the request as a part of a longer sentence


# -- names and schemas --------------------------------------------------------------------------


def join(source: Source, parts: list[str]) -> str:
    """Words as one identifier, in one of the usual spellings."""
    style = source.random()
    if style < 0.65:
        return "_".join(parts)
    if style < 0.82:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "-".join(parts) if style < 0.9 else "".join(parts) if style < 0.94 else ".".join(parts) if style < 0.95 else "".join(p.capitalize() for p in parts)


def odd_name(source: Source) -> str:
    return source.fresh(lambda: join(source, [source.term().lower() for _ in range(source.choice([1, 2, 2, 2, 3]))]))


def family_name(source: Source, family: Family) -> str:
    """A name that fits a family, or (one in eight) one that does not."""
    if source.chance(0.12):
        return odd_name(source)
    if not source.test and source.chance(0.35):
        return source.choice(family.canonical.split())

    def draw() -> str:
        verb, noun = source.choice(family.verbs.split()), source.choice(family.nouns.split())
        parts = source.choice([[verb, noun], [verb, noun], [verb, noun], [noun, verb], [noun], [verb, noun, source.word()], [source.word(), verb, noun]])
        return join(source, parts)

    return source.fresh(draw)


def parameter_name(source: Source, names: list[str]) -> str:
    """One of the fitting names, with a word before or after it when they are used up."""
    if source.chance(0.1):
        return odd_parameter(source)
    if not source.test and source.chance(0.4):
        return names[0]

    def draw() -> str:
        name = source.choice(names)
        kind = source.random()
        if kind < (0.4 if source.test else 0.75):
            return name
        return join(source, source.choice([[name, source.word()], [source.word(), name]]))

    return source.fresh(draw)


def odd_parameter(source: Source) -> str:
    kind = source.random()
    if kind < 0.5 and not source.test:
        return source.fresh(lambda: source.choice(PARAMETER_NAMES))
    if kind < 0.75:
        return source.fresh(lambda: join(source, [source.choice(PARAMETER_NAMES), source.term().lower()]))
    return odd_name(source)


def build_schema(source: Source, name: str, description: str, parameters: tuple[Parameter, ...], extra: list[Parameter]) -> Schema:
    """A function schema in one of the shapes that clients send."""
    properties: dict[str, Any] = {}
    for parameter in [*parameters, *extra]:
        entry = dict(JSON_TYPES.get(parameter.type, {"type": parameter.type}))
        if source.chance(0.35):
            text = source.choice([f"The {parameter.name}", f"{parameter.name} of the {source.word()}", source.phrase(2, 6)])
            entry = {**entry, "description": text} if source.chance(0.8) else {"description": text, **entry}
        elif source.chance(0.04):
            entry["title"] = parameter.name.capitalize()
        if parameter in extra and source.chance(0.3):
            entry["default" if parameter.type != "string" else "enum"] = source.value("count") if parameter.type != "string" else [source.word(), source.word()]
        properties[parameter.name] = entry
    body: Schema = {"type": "object", "properties": properties}
    if source.chance(0.88) and (parameters or source.chance(0.5)):
        body["required"] = [parameter.name for parameter in parameters]
    if source.chance(0.12):
        body["additionalProperties"] = False
    body = reorder(source, body, 0.1)
    schema = {"name": name, "description": description, "parameters": body}
    if source.chance(0.05):
        schema.pop("description")
    if source.chance(0.08):
        schema["strict"] = source.chance(0.7)
    return reorder(source, schema, 0.15)


def reorder(source: Source, mapping: Schema, share: float) -> Schema:
    if not source.chance(share):
        return mapping
    keys = list(mapping)
    source.shuffle(keys)
    return {key: mapping[key] for key in keys}


def extras(source: Source, taken: set[str]) -> list[Parameter]:
    """Optional parameters that nobody asks for."""
    found: list[Parameter] = []
    for _ in range(source.choice([0, 0, 0, 0, 0, 1, 1, 2])):
        name = odd_parameter(source)
        if name not in taken:
            taken.add(name)
            kind = source.choice(["string", "integer", "boolean"])
            found.append(Parameter(name, kind, kind))
    return found


def make_tool(source: Source, name: str, description: str, wanted: list[tuple[list[str] | None, str, str]], family: str = "") -> Tool:
    taken: set[str] = set()
    parameters: list[Parameter] = []
    for names, kind_type, kind in wanted:
        for _ in range(50):
            chosen = parameter_name(source, names) if names else odd_parameter(source)
            if chosen not in taken:
                break
        taken.add(chosen)
        parameters.append(Parameter(chosen, kind_type, kind, names[0] if names else ""))
    fixed = tuple(parameters)
    return Tool(name, description, fixed, build_schema(source, name, description, fixed, extras(source, taken)), family)


def family_tool(source: Source, key: str) -> Tool:
    family = FAMILIES[key]
    description = source.choice(family.descriptions.split("|"))
    if source.chance(0.25):
        description += " " + source.choice([source.phrase(3, 8).capitalize() + ".", "Returns text.", "Use it when the user asks.", source.choice(list(_sentences()))])
    wanted = [(names.split(), kind_type, kind) for names, kind_type, kind in family.parameters]
    return make_tool(source, family_name(source, family), description, wanted, key)


def _sentences() -> tuple[str, ...]:
    from .words import sentences

    return sentences()


def random_tool(source: Source) -> Tool:
    types = source.choices(["string", "integer", "number", "boolean", "strings", "integers"], [58, 17, 11, 8, 4, 2], k=source.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4]))
    wanted = [(None, kind, source.choice(TYPE_KINDS[kind])) for kind in types]
    verb, noun = source.term().lower(), source.term().lower()
    style = source.random()
    description = f"{verb.capitalize()} the {noun}." if style < 0.4 else f"{verb.capitalize()}s a {noun} {source.word()}." if style < 0.6 else source.phrase(3, 7).capitalize() + "."
    return make_tool(source, odd_name(source), description, wanted)


# -- requests -----------------------------------------------------------------------------------


def spoken(source: Source, value: Any) -> str:
    """How a user writes a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        items = [str(item) for item in value]
        if source.chance(0.35) or len(items) == 1:
            return json.dumps(value, ensure_ascii=False)
        return ", ".join(items[:-1]) + source.choice([" and ", ", ", " and "]) + items[-1]
    return str(value)


def listed(source: Source, arguments: dict[str, Any]) -> str:
    """Arguments by name: `k=v`, `k v`, `k is "v"`, in the order given or another."""
    pairs = list(arguments.items())
    if source.chance(0.3):
        source.shuffle(pairs)
    style = source.choice(["{k}={v}", "{k}={v}", "{k} {v}", '{k} "{v}"', "{k}: {v}", '{k} is "{v}"', "{k} set to {v}", "{k} = {v}", '{k}="{v}"', "{k} as {v}"])
    parts = []
    for name, value in pairs:
        text = spoken(source, value)
        form = style if isinstance(value, str) else style.replace('"', "")
        parts.append(form.replace("{k}", name).replace("{v}", text))
    if len(parts) > 1 and source.chance(0.6):
        return ", ".join(parts[:-1]) + " and " + parts[-1]
    return source.choice([", ", ", ", "; "]).join(parts)


def random_clause(source: Source, tool: Tool, arguments: dict[str, Any]) -> str:
    """A request for a random tool, as a clause without a full stop."""
    named = source.chance(0.62) or "description" not in tool.schema
    verb = source.choice(["use", "call", "run", "invoke", "use the tool", "call the tool", "please use", "use the", "try", "execute"])
    what = f"{verb} {tool.name}" if named else tool.description.rstrip(".")
    what = what[0].lower() + what[1:]
    if not arguments:
        return what
    if len(arguments) <= 2 and source.chance(0.18):
        values = [spoken(source, value) for value in arguments.values()]
        return f"{what} {source.choice(['with', 'on', 'for'])} {' and '.join(values)}"
    return f"{what} {source.choice(['with', 'with', 'with', 'using', 'for', 'where', 'and set'])} {listed(source, arguments)}"


def family_clause(source: Source, tool: Tool, arguments: dict[str, Any]) -> str:
    ask = source.choice(FAMILIES[tool.family].asks.split("|"))
    values = list(arguments.values())
    for index, value in enumerate(values):
        text = ("on" if value else "off") if tool.family == "light" and isinstance(value, bool) else spoken(source, value)
        ask = ask.replace("{%d}" % index, text)
    return ask


def make_task(source: Source, tool: Tool) -> Task:
    """Draw values, and ask for one call of the tool with them."""
    arguments = {parameter.name: source.value(parameter.kind) for parameter in tool.parameters}
    if tool.family:
        ask = family_clause(source, tool, arguments)
        if source.chance(0.12):
            ask = random_clause(source, tool, arguments)
            ask = ask[0].upper() + ask[1:]
    else:
        ask = random_clause(source, tool, arguments)
        if source.chance(0.8):
            ask = ask[0].upper() + ask[1:] + source.choice([".", ".", ""])
    result = make_result(source, FAMILIES[tool.family].result if tool.family else "any")
    return Task(tool, ask, arguments, result)


# -- results ------------------------------------------------------------------------------------


def make_result(source: Source, kind: str) -> str:
    """What a tool returns."""
    if source.chance(0.06):
        return f"Error: {source.phrase(1, 4)}"
    if kind == "weather":
        sky = source.choice(["clear", "cloudy", "rain", "snow", "sunny", "fog", source.word()])
        degrees = source.randint(-10, 39)
        return source.choice([
            f"{degrees} degrees and {sky}", f"{sky}, {degrees}°C", json.dumps({"temperature": degrees, "sky": sky}),
            json.dumps({"temp_c": degrees, "condition": sky, "wind": source.randint(0, 60)}), f"{degrees}C", sky,
        ])
    if kind == "number":
        return str(source.value(source.choice(["integer", "number"])))
    if kind == "clock":
        return source.choice([source.value("clock"), f"{source.value('date')} {source.value('clock')}", f"{source.value('date')}T{source.value('clock')}:00Z"])
    if kind == "names":
        names = [source.value("path") for _ in range(source.randint(1, 5))]
        return source.choice(["\n", "\n", ", "]).join(names) if source.chance(0.8) else json.dumps(names)
    if kind == "done":
        return source.choice(["ok", "done", "OK", "Done.", "saved", f"{source.value('count')} bytes written", json.dumps({"ok": True}), source.phrase(1, 4), f"id {source.value('identifier')}", json.dumps({"status": source.word()})])
    if kind == "file" or (kind == "output" and source.chance(0.3)):
        return source.value("body")
    if kind == "json" or source.chance(0.25):
        return make_json(source)
    return str(source.value(source.choice(["sentence", "phrase", "word", "number", "integer", "quoted", "identifier"])))


def make_json(source: Source) -> str:
    keys = [source.choice([source.word(), source.choice(PARAMETER_NAMES)]) for _ in range(source.randint(1, 4))]
    record = {key: source.value(source.choice(["word", "phrase", "integer", "number", "boolean", "identifier"])) for key in keys}
    return json.dumps(record, ensure_ascii=False, separators=source.choice([None, None, (",", ":")]))
