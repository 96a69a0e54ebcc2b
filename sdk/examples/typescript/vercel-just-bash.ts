/**
 * An agent of the Vercel AI SDK with just-bash: its shell works on a branch of a workspace. Every command is a tool call in
 * the timeline with what it changed, the prompt is a commit, and nothing reaches the project before `apply`.
 *
 *     OPENAI_BASE_URL=… OPENAI_API_KEY=… MODEL=… node vercel-just-bash.js PROJECT PROMPT
 */

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Workspace } from "agentvfs";
import { WorkspaceFs } from "agentvfs/just-bash";
import { generateText, stepCountIs, tool } from "ai";
import { Bash } from "just-bash";
import { basename } from "node:path";
import { z } from "zod";

const [project, prompt] = process.argv.slice(2);
if (!project || !prompt) throw new Error("usage: vercel-just-bash PROJECT PROMPT");

const ws = await Workspace.open(basename(project), { from: project });
const bash = new Bash({ fs: new WorkspaceFs(ws), cwd: "/" });
const provider = createOpenAICompatible({
  name: "model",
  baseURL: process.env.OPENAI_BASE_URL ?? "https://api.openai.com/v1",
  apiKey: process.env.OPENAI_API_KEY ?? "",
});

// The state before the prompt: `agentvfs rollback --meta prompt=…` goes back to it.
const before = await ws.checkpoint({ message: prompt, meta: { prompt: new Date().toISOString() } });

const { text } = await generateText({
  model: provider(process.env.MODEL ?? "gpt-5"),
  system: "You work on the project in /. Use the tool bash. Say in one line what you did.",
  prompt,
  stopWhen: stepCountIs(20),
  tools: {
    bash: tool({
      description: "Runs a bash command in the project",
      inputSchema: z.object({ command: z.string() }),
      execute: ({ command }) =>
        ws.tools.run("bash", { command }, async () => {
          const { stdout, stderr, exitCode } = await bash.exec(command);
          return { stdout, stderr, exitCode };
        }),
    }),
  },
});

console.log(text);
for (const { status, path } of await ws.diff({ from: before.commit ?? "@" })) console.log(`${status} ${path}`);
for await (const call of ws.tools.list({ limit: 20 })) {
  const { command } = call.parameters as { command: string };
  console.log(`call ${call.id}: ${command} (agentvfs tool undo ${call.id} -w ${ws.name} takes it back)`);
}
ws.close();
