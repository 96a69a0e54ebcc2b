/**
 * Files of a branch: live, where they can be changed, or as a commit has them.
 *
 * Invariant: memory is bounded by {@link PIECE_BYTES} times a small number, however large a file is that is streamed.
 */

import { Readable, Writable } from "node:stream";
import type { Client } from "./client.js";
import type { CallOptions, Connection } from "./connection.js";
import { AbortedError, EndingError, FileError } from "./errors.js";
import { asBuffer, ofBytes, ofMoment, ofText, shownPath, wireBytes, wirePath, type Path, type State, type WireBytes, type WireMoment } from "./wire.js";

/** Bytes of one request to write; as base64 they fit a request with its other parameters. */
export const PIECE_BYTES = 512 * 1024;
/** Bytes that a stream sends at a time. */
const STREAM_BYTES = 256 * 1024;
/** Bytes of one response. */
const READ_BYTES = 128 * 1024;
/** Bytes of a hole that are given at a time. */
const ZEROS = Buffer.alloc(READ_BYTES);

/** What a file is. */
export type FileType = "file" | "directory" | "symlink" | "fifo" | "socket" | "character-device" | "block-device";

interface WireNode {
  name: WireBytes;
  type: FileType;
  perm: number;
  nlink: number;
  uid: number;
  gid: number;
  rdev: number;
  size: number;
  mtime: WireMoment;
  inode: number;
  target?: WireBytes | null;
  xattrs?: [WireBytes, WireBytes][];
}

/** Bits of `mode` that say what a file is (inode(7)). */
const TYPE_BITS: Record<FileType, number> = {
  file: 0o100000,
  directory: 0o040000,
  symlink: 0o120000,
  fifo: 0o010000,
  socket: 0o140000,
  "character-device": 0o020000,
  "block-device": 0o060000,
};

/** What is known of a file. */
export class FileInfo {
  /** What it is. */
  readonly type: FileType;
  /** Permission bits. */
  readonly perm: number;
  /** How many names it has. */
  readonly nlink: number;
  /** Its owner. */
  readonly uid: number;
  /** Its group. */
  readonly gid: number;
  /** Of a device, its number. */
  readonly rdev: number;
  /** Its length in bytes. */
  readonly size: number;
  /** When it was changed last, to the millisecond. */
  readonly mtime: Date;
  /** The same in nanoseconds since 1970. */
  readonly mtimeNs: bigint;
  /** The same number for all names of one file. */
  readonly inode: number;
  /** Of a symbolic link, where it leads to; otherwise null. */
  readonly target: string | null;
  #node: WireNode;

  /** @internal */
  constructor(node: WireNode) {
    this.#node = node;
    this.type = node.type;
    this.perm = node.perm;
    this.nlink = node.nlink;
    this.uid = node.uid;
    this.gid = node.gid;
    this.rdev = node.rdev;
    this.size = node.size;
    this.mtime = ofMoment(node.mtime);
    this.mtimeNs = BigInt(node.mtime.sec) * 1_000_000_000n + BigInt(node.mtime.nsec);
    this.inode = node.inode;
    this.target = node.target == null ? null : ofText(node.target);
  }

  /** Its name; empty for the root. What is not UTF-8 in it is U+FFFD: `nameBytes` is exact. */
  get name(): string {
    return ofText(this.#node.name);
  }

  /** Its name. */
  get nameBytes(): Buffer {
    return ofBytes(this.#node.name);
  }

  /** Of a symbolic link, where it leads to; otherwise null. */
  get targetBytes(): Buffer | null {
    return this.#node.target == null ? null : ofBytes(this.#node.target);
  }

  /** Extended attributes by name. */
  get xattrs(): Map<string, Buffer> {
    return new Map((this.#node.xattrs ?? []).map(([name, value]) => [ofText(name), ofBytes(value)]));
  }

  /** What it is, and its permission bits, as `st_mode` has them. */
  get mode(): number {
    return TYPE_BITS[this.type] | this.perm;
  }

  /** Whether it is a regular file. */
  isFile(): boolean {
    return this.type === "file";
  }

  /** Whether it is a directory. */
  isDirectory(): boolean {
    return this.type === "directory";
  }

  /** Whether it is a symbolic link. */
  isSymbolicLink(): boolean {
    return this.type === "symlink";
  }
}

/** Ends a call. */
export interface Abortable {
  /** Ends the call with an `AbortedError`. A change may have been made all the same. */
  signal?: AbortSignal | undefined;
}

/** How a file is written. */
export interface WriteOptions extends Abortable {
  /** Permission bits of a new file (0o644). */
  perm?: number;
  /** Create missing directories (false). */
  parents?: boolean;
  /** Return before the change is on stable storage (false); it is, with the next change that is synced. */
  unsynced?: boolean;
}

/** What the file system has. */
export interface FilesStats {
  /** Bytes of the disk below the store. */
  bytesTotal: number;
  /** Those that are free. */
  bytesFree: number;
  /** Those that this user may use. */
  bytesAvailable: number;
  /** Files, directories and others in the live tree. */
  inodes: number;
  /** Sum of the lengths of its files. */
  bytesUsed: number;
  /** Longest name. */
  nameMax: number;
}

/** Files of one state of a branch, to be read. */
export class FilesView {
  /** @internal */
  constructor(
    protected readonly client: Client,
    protected readonly place: { workspace: string; branch: string },
    protected readonly state: State = "live",
  ) {}

  /** What is known of a file; of a symbolic link, what is known of its target. */
  async stat(path: Path, options: Abortable & { follow?: boolean } = {}): Promise<FileInfo> {
    return new FileInfo(await this.look("fs.stat", path, { follow: options.follow ?? true }, options));
  }

  /** The same, of a symbolic link itself. */
  lstat(path: Path, options: Abortable = {}): Promise<FileInfo> {
    return this.stat(path, { ...options, follow: false });
  }

  /** Whether there is something at a path; a symbolic link counts, wherever it leads. */
  async exists(path: Path, options: Abortable = {}): Promise<boolean> {
    try {
      await this.lstat(path, options);
      return true;
    } catch (error) {
      if (error instanceof FileError && (error.code === "ENOENT" || error.code === "ENOTDIR")) return false;
      throw error;
    }
  }

  /** Where a symbolic link leads to. */
  async readlink(path: Path, options: Abortable = {}): Promise<string> {
    return (await this.readlinkBytes(path, options)).toString();
  }

  /** The same as bytes. */
  async readlinkBytes(path: Path, options: Abortable = {}): Promise<Buffer> {
    const { targetBytes } = await this.lstat(path, options);
    if (targetBytes !== null) return targetBytes;
    const shown = shownPath(path);
    throw new FileError(`${shown}: it is not a symbolic link`, { kind: "wrong-type", errno: "EINVAL", method: "fs.stat", path: shown });
  }

  /** The entries of a directory, by name. */
  async list(path: Path = "", options: Abortable = {}): Promise<FileInfo[]> {
    const all = [];
    for await (const entry of this.entries(path, options)) all.push(entry);
    return all;
  }

  /** The same, some thousand at a time. */
  async *entries(path: Path = "", options: Abortable = {}): AsyncGenerator<FileInfo, void, void> {
    type Page = { entries: WireNode[]; more: boolean };
    let after: WireBytes | null = null;
    for (let more = true; more; ) {
      const page: Page = await this.look<Page>("fs.list", path, { after }, options);
      for (const node of page.entries) yield new FileInfo(node);
      after = page.entries.at(-1)?.name ?? null;
      more = page.more;
    }
  }

  /** A file's content, or a part of it. */
  async read(path: Path, options: Abortable & { offset?: number; length?: number } = {}): Promise<Buffer> {
    const parts = [];
    for await (const part of this.pieces(path, options)) parts.push(part);
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  /** A file's content as text. */
  async readText(path: Path, options: Abortable & { encoding?: BufferEncoding } = {}): Promise<string> {
    return (await this.read(path, options)).toString(options.encoding ?? "utf8");
  }

  /** A file's content as a stream. */
  createReadStream(path: Path, options: Abortable & { offset?: number; length?: number } = {}): Readable {
    return Readable.from(this.pieces(path, options), { objectMode: false, highWaterMark: READ_BYTES });
  }

  /** A file's content in pieces; the next one is asked for while the caller has the last one. */
  async *pieces(path: Path, options: Abortable & { offset?: number; length?: number } = {}): AsyncGenerator<Buffer, void, void> {
    let at = options.offset ?? 0;
    const end = options.length === undefined ? Infinity : at + options.length;
    let next: Promise<Piece> | null = at < end ? this.#piece(path, at, end, options) : null;
    while (next !== null) {
      const { offset, data } = await next;
      const after: number = offset + data.length;
      next = data.length > 0 && after < end ? this.#piece(path, after, end, options) : null;
      // It is awaited in the next round; an error that comes before is not lost, nor unhandled.
      next?.catch(() => {});
      yield* zeros(Math.min(offset, end) - at);
      if (data.length > 0) yield data;
      at = after;
    }
  }

  /** What is there from an offset on: its data, after a hole if there is one; no data at the end. */
  async #piece(path: Path, offset: number, end: number, options: Abortable): Promise<Piece> {
    const length = Math.min(READ_BYTES, end - offset);
    const answer = await this.look<{ offset: number; b64: string }>("fs.read", path, { offset, length }, options);
    const data = Buffer.from(answer.b64, "base64");
    return { offset: answer.offset, data: answer.offset + data.length > end ? data.subarray(0, Math.max(0, end - answer.offset)) : data };
  }

  /** @internal */
  protected look<R>(method: string, path: Path, more: object, options: Abortable): Promise<R> {
    const params = { ...this.place, state: this.state, path: wirePath(path), ...more };
    return this.client.call<R>(method, params, { signal: options.signal, path: shownPath(path) });
  }
}

interface Piece {
  offset: number;
  data: Buffer;
}

function* zeros(length: number): Generator<Buffer, void, void> {
  for (let left = length; left > 0; left -= ZEROS.length) yield Buffer.from(ZEROS.subarray(0, Math.min(left, ZEROS.length)));
}

/** Files of a branch as they are now. */
export class Files extends FilesView {
  /** Files as a commit, a label or another ref has them, or as the base has them. */
  at(state: string | State): FilesView {
    const named = typeof state === "string" && state !== "live" && state !== "base" ? { ref: state } : (state as State);
    return new FilesView(this.client, this.place, named);
  }

  /**
   * Writes a file; it has exactly this content when the call returns, and is on stable storage. Up to
   * {@link PIECE_BYTES} are one change; more are several, and so is a stream.
   */
  async write(path: Path, data: string | Uint8Array | AsyncIterable<Uint8Array>, options: WriteOptions = {}): Promise<void> {
    const content = typeof data === "string" ? Buffer.from(data) : data;
    if (content instanceof Uint8Array) return this.#writeAll(path, asBuffer(content), 0, options);
    const writer = new Writer(this, path, 0, options);
    for await (const part of content) await writer.add(part);
    await writer.end();
  }

  /** Appends to a file, which is created if it does not exist. */
  async append(path: Path, data: string | Uint8Array, options: WriteOptions = {}): Promise<void> {
    await this.#writeAll(path, typeof data === "string" ? Buffer.from(data) : asBuffer(data), null, options);
  }

  async #writeAll(path: Path, data: Buffer, start: number | null, options: WriteOptions): Promise<void> {
    let at = 0;
    do {
      const part = data.subarray(at, at + PIECE_BYTES);
      const last = at + part.length === data.length;
      await this.writePart(path, part, start === null ? null : start + at, last, options);
      at += part.length;
    } while (at < data.length);
  }

  /** A stream to write a file by, from its beginning, or to append to it. */
  createWriteStream(path: Path, options: WriteOptions & { append?: boolean } = {}): Writable {
    const writer = new Writer(this, path, options.append ? null : 0, options);
    return new Writable({
      highWaterMark: STREAM_BYTES,
      write: (chunk: Buffer, _encoding, done) => void writer.add(chunk).then(() => done(), done),
      final: (done) => void writer.end().then(() => done(), done),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  }

  /** @internal Writes one piece; gives the file's length. */
  async writePart(path: Path, data: Buffer, offset: number | null, last: boolean, options: WriteOptions): Promise<number> {
    const { perm, parents, unsynced } = options;
    const more = { offset, last, perm, parents, unsynced: unsynced || undefined };
    return (await this.change<{ size: number }>("fs.write", path, more, { signal: options.signal, data })).size;
  }

  /** Creates a directory. */
  async mkdir(path: Path, options: Abortable & { parents?: boolean } = {}): Promise<void> {
    await this.change("fs.mkdir", path, { parents: options.parents }, options);
  }

  /**
   * Removes a file or directory: `recursive`, a directory with all its entries; `force`, nothing there is no error;
   * `expect`, only what is a directory, or only what is none.
   */
  async remove(path: Path, options: RemoveOptions = {}): Promise<void> {
    try {
      await this.change("fs.remove", path, { recursive: options.recursive, expect: options.expect }, options);
    } catch (error) {
      if (!(options.force && error instanceof FileError && error.code === "ENOENT")) throw error;
    }
  }

  /** Gives a file or directory another path; what is there is replaced as rename(2) does. */
  async rename(from: Path, to: Path, options: Abortable = {}): Promise<void> {
    await this.#pair("fs.rename", from, to, {}, options);
  }

  /** Copies a file; both share their content in the store. */
  async copy(from: Path, to: Path, options: Abortable & { overwrite?: boolean } = {}): Promise<void> {
    await this.#pair("fs.copy", from, to, { overwrite: options.overwrite }, options);
  }

  async #pair(method: string, from: Path, to: Path, more: object, options: Abortable): Promise<void> {
    const params = { ...this.place, from: wirePath(from), to: wirePath(to), ...more };
    await this.client.call(method, params, { signal: options.signal, path: shownPath(from) });
  }

  /** Creates a symbolic link at `path` that leads to `target`. */
  async symlink(target: string | Uint8Array, path: Path, options: Abortable = {}): Promise<void> {
    await this.change("fs.symlink", path, { target: typeof target === "string" ? target : wireBytes(target) }, options);
  }

  /** Sets a file's length. */
  async truncate(path: Path, size = 0, options: Abortable = {}): Promise<void> {
    await this.change("fs.truncate", path, { size }, options);
  }

  /** Sets permission bits. */
  async chmod(path: Path, perm: number, options: Abortable = {}): Promise<void> {
    await this.change("fs.chmod", path, { perm: perm & 0o7777 }, options);
  }

  /** Waits until everything that was changed on the branch is on stable storage. */
  async sync(options: Abortable = {}): Promise<void> {
    await this.client.call("workspace.sync", this.place, options);
  }

  /** What the file system has. */
  async statfs(options: Abortable = {}): Promise<FilesStats> {
    const f = await this.client.call<Record<string, number>>("fs.statfs", this.place, options);
    return {
      bytesTotal: f.bytes_total!,
      bytesFree: f.bytes_free!,
      bytesAvailable: f.bytes_available!,
      inodes: f.inodes!,
      bytesUsed: f.bytes_used!,
      nameMax: f.name_max!,
    };
  }

  /** Opens a file. The handle survives renaming and removal of the file, but not the end of the daemon. */
  async open(path: Path, options: OpenOptions = {}): Promise<FileHandle> {
    const { create, exclusive, truncate, perm, signal } = options;
    const params = { ...this.place, path: wirePath(path), create, exclusive, truncate, perm };
    const call = { signal, path: shownPath(path) };
    // A handle belongs to the connection that it was opened on.
    const [{ handle }, connection] = await this.client.pinned<{ handle: number }>("fs.open", params, call);
    return new FileHandle(connection, handle, shownPath(path));
  }

  /** @internal */
  protected change<R>(method: string, path: Path, more: object, options: Pick<CallOptions, "signal" | "data">): Promise<R> {
    const params = { ...this.place, path: wirePath(path), ...more };
    return this.client.call<R>(method, params, { signal: options.signal, data: options.data, path: shownPath(path) });
  }
}

/** How something is removed. */
export interface RemoveOptions extends Abortable {
  /** A directory with all its entries. */
  recursive?: boolean;
  /** Nothing there is no error. */
  force?: boolean;
  /** Only a directory, or only what is none: otherwise ENOTDIR or EISDIR. */
  expect?: "file" | "directory";
}

/** How a file is opened. */
export interface OpenOptions extends Abortable {
  /** Create it if it does not exist. */
  create?: boolean;
  /** With `create`: EEXIST if it exists. */
  exclusive?: boolean;
  /** Make it empty. */
  truncate?: boolean;
  /** Permission bits of a new file (0o644). */
  perm?: number;
}

/** Collects what is written into pieces. Memory: two pieces, and what the caller gives at once. */
class Writer {
  #parts: Buffer[] = [];
  #length = 0;
  #at: number | null;

  constructor(
    private readonly files: Files,
    private readonly path: Path,
    start: number | null,
    private readonly options: WriteOptions,
  ) {
    this.#at = start;
  }

  async add(part: Uint8Array): Promise<void> {
    if (this.options.signal?.aborted) throw new AbortedError(this.options.signal.reason, "fs.write");
    this.#parts.push(asBuffer(part));
    this.#length += part.length;
    if (this.#length < STREAM_BYTES) return;
    const all = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts);
    let from = 0;
    for (; all.length - from >= STREAM_BYTES; from += STREAM_BYTES) await this.#send(all.subarray(from, from + STREAM_BYTES), false);
    // A copy: a stream may use its buffer again.
    this.#parts = [Buffer.from(all.subarray(from))];
    this.#length = all.length - from;
  }

  async end(): Promise<void> {
    await this.#send(Buffer.concat(this.#parts), true);
  }

  async #send(data: Buffer, last: boolean): Promise<void> {
    await this.files.writePart(this.path, data, this.#at, last, this.options);
    if (this.#at !== null) this.#at += data.length;
  }
}

/** An open file. Close it: a connection has 256 at most. */
export class FileHandle {
  #open = true;

  /** @internal */
  constructor(
    private readonly connection: Connection,
    private readonly handle: number,
    private readonly path: string,
  ) {
    connection.handles++;
  }

  /** Whether it was not closed. */
  get isOpen(): boolean {
    return this.#open;
  }

  /** Reads from an offset; less than `length` bytes only at the end of the file. Holes are zeros. */
  async read(offset: number, length: number, options: Abortable = {}): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let left = length; left > 0; ) {
      const ask = { offset: offset + length - left, length: Math.min(left, READ_BYTES) };
      const { b64 } = await this.#call<{ b64: string }>("fs.pread", ask, options);
      if (b64 === "") break;
      parts.push(Buffer.from(b64, "base64"));
      left -= parts.at(-1)!.length;
    }
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  /** Writes at an offset; `null` is the end. Gives the length of the file. */
  async write(offset: number | null, data: string | Uint8Array, options: Abortable = {}): Promise<number> {
    const all = typeof data === "string" ? Buffer.from(data) : asBuffer(data);
    let size = 0;
    let at = 0;
    do {
      const part = all.subarray(at, at + PIECE_BYTES);
      const ask = { offset: offset === null ? null : offset + at };
      size = (await this.#call<{ size: number }>("fs.pwrite", ask, { signal: options.signal, data: part })).size;
      at += part.length;
    } while (at < all.length);
    return size;
  }

  /** Sets the file's length. */
  async truncate(size = 0, options: Abortable = {}): Promise<void> {
    await this.#call("fs.ftruncate", { size }, options);
  }

  /** What is known of the file. */
  async stat(options: Abortable = {}): Promise<FileInfo> {
    return new FileInfo(await this.#call<WireNode>("fs.fstat", {}, options));
  }

  /** Waits until what was written is on stable storage. */
  async sync(options: Abortable = {}): Promise<void> {
    await this.#call("fs.fsync", {}, options);
  }

  /** Closes it; a second time, or after the daemon's end, nothing happens. */
  async close(): Promise<void> {
    if (!this.#open) return;
    this.#open = false;
    this.connection.handles--;
    if (this.connection.isOpen) await this.connection.request("fs.close", { handle: this.handle });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #call<R>(method: string, more: object, options: CallOptions): Promise<R> {
    const gone = (why: string) =>
      new FileError(`${this.path}: ${why}`, { kind: "no-such-handle", errno: "EBADF", method, path: this.path });
    if (!this.#open) throw gone("it was closed");
    const params = { handle: this.handle, ...more };
    try {
      return (await this.connection.request(method, params, { signal: options.signal, data: options.data, path: this.path })) as R;
    } catch (error) {
      throw error instanceof EndingError ? gone("the daemon that had it open has ended") : error;
    }
  }
}
