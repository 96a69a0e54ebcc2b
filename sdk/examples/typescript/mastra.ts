/**
 * A Mastra agent whose work is two steps of a long program: each runs on a branch of its own, and is merged if its check
 * succeeds. If the program is killed and run again, what was done is not done again, and the files are as they were.
 *
 *     OPENAI_BASE_URL=… OPENAI_API_KEY=… MODEL=… node mastra.js PROJECT PROMPT…
 */

import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { Workspace } from "agentvfs";
import { basename } from "node:path";
import { z } from "zod";

const [project, ...prompts] = process.argv.slice(2);
if (!project || prompts.length === 0) throw new Error("usage: mastra PROJECT PROMPT...");

const ws = await Workspace.open(basename(project), { from: project, stepsOf: "mastra" });

/** The tools of an agent, on one branch: each call stands in the timeline with what it changed. */
function toolsOn(branch: Workspace) {
  return {
    read: createTool({
      id: "read",
      description: "Reads a file of the project",
      inputSchema: z.object({ path: z.string() }),
      execute: async ({ context }) => ({ content: await branch.files.readText(context.path) }),
    }),
    write: createTool({
      id: "write",
      description: "Writes a file of the project",
      inputSchema: z.object({ path: z.string(), content: z.string() }),
      execute: async ({ context }) =>
        branch.tools.run("write", context, async () => {
          await branch.files.write(context.path, context.content, { parents: true, unsynced: true });
          return { written: context.path };
        }),
    }),
    run: createTool({
      id: "run",
      description: "Runs a shell command in the project, in a sandbox without network",
      inputSchema: z.object({ command: z.string() }),
      execute: async ({ context }) =>
        branch.tools.run("run", context, async () => {
          const { exit, stdout, stderr } = await branch.run(["sh", "-c", context.command], { net: "none" });
          return { exit, output: `${stdout}${stderr}` };
        }),
    }),
  };
}

/** One prompt on a branch of its own, which is merged; with conflicts it stays for a human. */
async function work(prompt: string, number: number): Promise<string> {
  const name = `prompt-${number}`;
  // What a run that was killed left of this step is given up.
  await ws.branches.delete(name).catch(() => {});
  await ws.branches.create(name);
  const branch = ws.on(name);
  const agent = new Agent({
    name: "worker",
    instructions: "You work on a project by your tools. Say in one line what you did.",
    model: {
      id: `custom/${process.env.MODEL ?? "gpt-5"}`,
      url: process.env.OPENAI_BASE_URL ?? "https://api.openai.com/v1",
      apiKey: process.env.OPENAI_API_KEY ?? "",
    },
    tools: toolsOn(branch),
  });
  const { text } = await agent.generate(prompt, { maxSteps: 20 });
  const merged = await ws.merge(name, { message: prompt });
  if (merged.status === "conflicts") return `${text} (branch ${name} has conflicts: ${merged.conflicts.map((c) => c.path)})`;
  await ws.branches.delete(name);
  return text;
}

for (const [i, prompt] of prompts.entries()) {
  console.log(await ws.step(`prompt ${i + 1}`, () => work(prompt, i + 1), { files: true }));
}
console.log((await ws.diff({ from: "base" })).map((change) => `${change.status} ${change.path}`).join("\n"));
ws.close();
