// The AI SDK, by three of its providers.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool as define } from "ai";
import { KEY, MODEL, main } from "./common.js";

function model({ url, api }) {
  const settings = { name: "local", baseURL: url, apiKey: KEY };
  if (api === "chat") return createOpenAICompatible(settings)(MODEL);
  return api === "responses" ? createOpenAI(settings).responses(MODEL) : createAnthropic(settings)(MODEL);
}

await main(async (one) => {
  const { prompt, tool, schema, stream } = one;
  const request = {
    model: model(one),
    prompt,
    maxRetries: 0,
    maxOutputTokens: 1000,
    tools: { [tool.name]: define({ description: tool.name, inputSchema: jsonSchema(schema), execute: tool }) },
    stopWhen: stepCountIs(4),
  };
  if (!stream) return (await generateText(request)).text;
  const problems = [];
  const result = streamText({ ...request, onError: ({ error }) => problems.push(error) });
  await result.consumeStream();
  if (problems.length) throw problems[0];
  return await result.text;
});
