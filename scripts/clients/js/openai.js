// The OpenAI SDK for JavaScript.

import OpenAI from "openai";
import { KEY, MODEL, main } from "./common.js";

async function chat(client, { prompt, tool, schema, stream }) {
  const about = { name: tool.name, description: tool.name, parameters: schema };
  const runner = client.chat.completions.runTools({
    model: MODEL,
    messages: [{ role: "user", content: prompt }],
    tools: [{ type: "function", function: { ...about, function: tool, parse: JSON.parse } }],
    stream,
  });
  return runner.finalContent();
}

async function responses(client, { prompt, tool, schema, stream }) {
  const about = { name: tool.name, description: tool.name, parameters: schema };
  const input = [{ role: "user", content: prompt }];
  for (let turn = 0; turn < 4; turn++) {
    const request = { model: MODEL, input, tools: [{ type: "function", strict: false, ...about }] };
    const reply = stream
      ? await client.responses.stream(request).finalResponse()
      : await client.responses.create(request);
    input.push(...reply.output);
    const calls = reply.output.filter((item) => item.type === "function_call");
    if (!calls.length) return reply.output_text;
    for (const call of calls) {
      const output = tool(JSON.parse(call.arguments));
      input.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
  throw new Error("too many turns");
}

await main((one) => {
  const client = new OpenAI({ baseURL: one.url, apiKey: KEY, maxRetries: 0 });
  return { chat, responses }[one.api](client, one);
});
