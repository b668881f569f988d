// What every client is asked to do: node PEER.js CASES, a JSON list; one JSON line out for each case.

export const MODEL = "demo";
export const KEY = "none";

function made({ url, api, mode, kind }) {
  const ran = [];
  const get_weather = ({ city }) => (ran.push(`get_weather ${city}`), "sunny");
  const write_file = ({ path, content }) => (ran.push(`write_file ${path}`), `${(content ?? "").length} written`);
  const names = { turn: ["city"], cut: ["path", "content"] }[kind];
  return {
    url,
    api,
    ran,
    stream: mode === "stream",
    prompt: { turn: "What is the weather in Paris?", cut: "Write a long file." }[kind],
    tool: { turn: get_weather, cut: write_file }[kind],
    schema: {
      type: "object",
      properties: Object.fromEntries(names.map((name) => [name, { type: "string" }])),
      required: names,
      additionalProperties: false,
    },
  };
}

// Runs a client's agent in every case; `ask` returns its last text.
export async function main(ask) {
  for (const wanted of JSON.parse(process.argv[2])) {
    const one = made(wanted);
    let text = null;
    let error = null;
    try {
      text = await ask(one);
    } catch (problem) {
      error = `${problem.name}: ${String(problem.message).slice(0, 200)}`;
    }
    console.log(JSON.stringify({ ran: one.ran, text, error }));
  }
}
