/**
 * BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs), unkeyed, 32 bytes: names the socket of a home whose path is too
 * long. Written for short input: clear, not fast.
 */

const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const CHUNK_BYTES = 1024;
const BLOCK_BYTES = 64;
const CHUNK_START = 1;
const CHUNK_END = 2;
const PARENT = 4;
const ROOT = 8;
/** Columns, then diagonals. */
const MIXES = [
  [0, 4, 8, 12],
  [1, 5, 9, 13],
  [2, 6, 10, 14],
  [3, 7, 11, 15],
  [0, 5, 10, 15],
  [1, 6, 11, 12],
  [2, 7, 8, 13],
  [3, 4, 9, 14],
] as const;

/** What a compression takes: the last one of a tree gets the flag `ROOT`, so it is put off. */
interface Output {
  chaining: number[];
  block: number[];
  counter: number;
  length: number;
  flags: number;
}

function rotate(x: number, by: number): number {
  return (x >>> by) | (x << (32 - by));
}

function mix(v: number[], at: readonly [number, number, number, number], x: number, y: number): void {
  const [a, b, c, d] = at;
  let [va, vb, vc, vd] = [v[a]!, v[b]!, v[c]!, v[d]!];
  va = (va + vb + x) | 0;
  vd = rotate(vd ^ va, 16);
  vc = (vc + vd) | 0;
  vb = rotate(vb ^ vc, 12);
  va = (va + vb + y) | 0;
  vd = rotate(vd ^ va, 8);
  vc = (vc + vd) | 0;
  vb = rotate(vb ^ vc, 7);
  [v[a], v[b], v[c], v[d]] = [va, vb, vc, vd];
}

function compress(o: Output, flags: number): number[] {
  const low = o.counter | 0;
  const high = Math.floor(o.counter / 2 ** 32) | 0;
  const v = [...o.chaining, ...IV.slice(0, 4), low, high, o.length, o.flags | flags];
  let block = o.block;
  for (let round = 0; round < 7; round++) {
    MIXES.forEach((at, i) => mix(v, at, block[2 * i]!, block[2 * i + 1]!));
    block = PERMUTATION.map((from) => block[from]!);
  }
  return v.slice(0, 8).map((word, i) => word ^ v[i + 8]!);
}

function words(bytes: Uint8Array): number[] {
  const padded = Buffer.alloc(BLOCK_BYTES);
  padded.set(bytes);
  return Array.from({ length: 16 }, (_, i) => padded.readInt32LE(4 * i));
}

function chunk(bytes: Uint8Array, counter: number): Output {
  let chaining = IV;
  let at = 0;
  const start = () => (at === 0 ? CHUNK_START : 0);
  for (; bytes.length - at > BLOCK_BYTES; at += BLOCK_BYTES) {
    const block = words(bytes.subarray(at, at + BLOCK_BYTES));
    chaining = compress({ chaining, block, counter, length: BLOCK_BYTES, flags: start() }, 0);
  }
  const block = words(bytes.subarray(at));
  return { chaining, block, counter, length: bytes.length - at, flags: start() | CHUNK_END };
}

function tree(bytes: Uint8Array, counter: number): Output {
  if (bytes.length <= CHUNK_BYTES) return chunk(bytes, counter);
  // The left part has the largest power of two of chunks that leaves something for the right.
  const chunks = Math.ceil(bytes.length / CHUNK_BYTES);
  const left = 2 ** Math.ceil(Math.log2(chunks) - 1);
  const at = left * CHUNK_BYTES;
  const block = [
    ...compress(tree(bytes.subarray(0, at), counter), 0),
    ...compress(tree(bytes.subarray(at), counter + left), 0),
  ];
  return { chaining: IV, block, counter: 0, length: BLOCK_BYTES, flags: PARENT };
}

/** The hash of `bytes` in hex. */
export function blake3Hex(bytes: Uint8Array): string {
  const out = Buffer.alloc(32);
  compress(tree(bytes, 0), ROOT).forEach((word, i) => out.writeInt32LE(word | 0, 4 * i));
  return out.toString("hex");
}
