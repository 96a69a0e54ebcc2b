/** Writes and reads a large file by streams, in a process that has nothing else in its memory. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Workspace } from "agentvfs";

const LENGTH = Number(process.argv[3]);
const PIECE = 1 << 16;

/** Bytes that no two pieces share and that compress badly. */
function* content(): Generator<Buffer> {
  const piece = Buffer.alloc(PIECE);
  for (let at = 0; at < LENGTH; at += PIECE) {
    for (let i = 0; i < PIECE; i += 4) piece.writeUInt32LE((Math.imul(at + i, 2654435761) ^ (i >>> 3)) >>> 0, i);
    yield Buffer.from(piece);
  }
}

/** Most memory of this process so far. */
function peak(): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))![1]) * 1024;
}

const { files } = await Workspace.open(process.argv[2]);
await files.write("small", Buffer.alloc(PIECE));
await files.read("small");
const before = peak();
const [written, read] = [createHash("sha256"), createHash("sha256")];

function* source(): Generator<Buffer> {
  for (const piece of content()) {
    written.update(piece);
    yield piece;
  }
}

await pipeline(Readable.from(source(), { objectMode: false }), files.createWriteStream("large"));
const whenWritten = peak() - before;
await pipeline(files.createReadStream("large"), async (stream) => {
  for await (const part of stream) read.update(part as Buffer);
});
const same = written.digest("hex") === read.digest("hex");
console.log(JSON.stringify({ same, size: (await files.stat("large")).size, whenWritten, used: peak() - before }));
