/**
 * One connection to the daemon: lines of JSON, requests by id. Knows no method but `hello` and `cancel`.
 *
 * Invariant: nothing is sent before the response to `hello`, so a connection that ends earlier has done nothing.
 */

import { setMaxListeners } from "node:events";
import { Socket } from "node:net";
import { AbortedError, AgentVfsError, BrokenError, EndingError, NoDaemonError, ofFault, VERSION_HINT, VersionError } from "./errors.js";
import { checkOwner } from "./home.js";

/** The protocol's version that this package speaks. */
export const PROTOCOL_VERSION = 1;
/** Bytes that are read at a time. */
const READ_BYTES = 64 * 1024;
/** Room for a line to begin with. */
const LINE_BYTES = 16 * 1024;
/** How long a daemon may take to answer `hello`. */
const HELLO_MS = 5_000;
/** Methods that a notification can cancel while they run. */
const CANCELLABLE = new Set([
  "workspace.apply",
  "workspace.apply_patch",
  "workspace.update",
  "branch.merge",
  "workspace.export",
  "workspace.import",
  "workspace.patch",
  "workspace.diff",
  "store.fsck",
  "events.subscribe",
]);

/** Requests that may be open at once on one connection. */
const IN_FLIGHT = 16;

/** Methods that only read. */
const LOOKS = new Set([
  "workspace.list",
  "workspace.status",
  "workspace.rollback_plan",
  "workspace.log",
  "workspace.diff",
  "workspace.patch",
  "workspace.has_ref",
  "branch.list",
  "branch.conflicts",
  "branch.diff",
  "store.stats",
  "session.list",
  "tool.show",
  "timeline.list",
  "timeline.verify",
  "timeline.blame",
  "timeline.stats",
  "fs.stat",
  "fs.list",
  "fs.read",
  "fs.statfs",
  "kv.get",
  "kv.list",
  "events.subscribe",
]);

/** @internal Whether a method only reads, so that it may be sent again. */
export function onlyLooks(method: string): boolean {
  return LOOKS.has(method);
}

/** How far a request is. */
export interface Progress {
  /** What is done. */
  done: number;
  /** What there is to do. */
  total: number;
}

/** What a request may have besides its method and parameters. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal | undefined;
  /** Hears how far the work is, ten times a second at most. */
  onProgress?: ((progress: Progress) => void) | undefined;
  /** @internal Gets each part of a long result. */
  onData?: ((part: Buffer) => void) | undefined;
  /** @internal Bytes to be sent as the parameter `b64`. */
  data?: Buffer | undefined;
  /** @internal The path that is named in an error. */
  path?: string | null | undefined;
}

/** What the daemon says of itself. */
export interface Hello {
  /** Version of the protocol. */
  protocol: number;
  /** Version of the daemon's program. */
  version: string;
  /** Its build. */
  build: string;
  /** Its process. */
  pid: number;
  /** How many requests of one connection it works on at once. */
  in_flight?: number;
}

interface Pending {
  method: string;
  options: CallOptions;
  resolve: (result: unknown) => void;
  reject: (error: Error) => void;
  /** Nobody waits for the response any more. */
  left: boolean;
  stopListening: () => void;
}

/** A connection that has said hello. */
export class Connection {
  /** Who is at the other end. */
  hello!: Hello;
  /** When the last request was made or ended. */
  usedAt = Date.now();
  /** Handles of files that are open on it. */
  handles = 0;
  #socket: Socket;
  #pending = new Map<number, Pending>();
  #lastId = 0;
  /** The beginning of a line; its memory is used again for the next one. */
  #line = Buffer.allocUnsafe(LINE_BYTES);
  #lineLength = 0;
  #end: AgentVfsError | null = null;
  #isInvalid = false;
  #isRetired = false;
  #onFree: () => void;

  private constructor({ socket, reader }: Connected, onFree: () => void) {
    this.#socket = socket;
    this.#onFree = onFree;
    reader.take = (chunk) => this.#take(chunk);
    socket.on("error", (cause) => this.#close(`the connection to the daemon broke: ${cause.message}`, cause));
    socket.on("close", () => this.#close("the daemon ended, or closed the connection"));
  }

  /**
   * Connects and says hello. `onFree` is called when a request or the connection has ended.
   *
   * @returns null if nobody listens
   */
  static async open(path: string, onFree: () => void): Promise<Connection | null> {
    const connected = await connect(path);
    if (connected === null) return null;
    const connection = new Connection(connected, onFree);
    await connection.#greet();
    return connection;
  }

  async #greet(): Promise<void> {
    const signal = AbortSignal.timeout(HELLO_MS);
    const params = { protocol: PROTOCOL_VERSION, client: "agentvfs-typescript 0.1.0" };
    const hello = (more: object) => this.request("hello", { ...params, ...more }, { signal }) as Promise<Hello>;
    try {
      this.hello = await hello({ in_flight: IN_FLIGHT }).catch((error: unknown) => {
        // One that does not know the parameter did nothing.
        if (error instanceof AgentVfsError && error.kind === "invalid-request") return hello({});
        throw error;
      });
    } catch (error) {
      this.close();
      if (this.#isInvalid) throw new NoDaemonError("what listens at the daemon's socket sent an invalid message", { kind: "no-daemon" });
      // Before the response nothing has been done.
      if (error instanceof BrokenError) throw new EndingError(error.message, { kind: "stopping", method: "hello" });
      if (!(error instanceof AbortedError)) throw error;
      const hint = "look for a stopped or hanging `agentvfs daemon` process";
      throw new NoDaemonError("the daemon does not respond", { kind: "no-daemon", hint });
    }
    if (this.hello.protocol !== PROTOCOL_VERSION) {
      this.close();
      const why = `the daemon (${this.hello.version}) speaks protocol ${this.hello.protocol}, this package ${PROTOCOL_VERSION}`;
      throw new VersionError(why, { kind: "version", hint: VERSION_HINT });
    }
  }

  /** Whether requests can be made. */
  get isOpen(): boolean {
    return this.#end === null;
  }

  /** How many requests have not been answered. */
  get inFlight(): number {
    return this.#pending.size;
  }

  /** How many requests there may be. */
  get capacity(): number {
    return Math.max(1, this.hello?.in_flight ?? 1);
  }

  /** Whether a request that changes something has not been answered: the next one would wait for it. */
  get isChanging(): boolean {
    return [...this.#pending.values()].some((pending) => !onlyLooks(pending.method));
  }

  /** Makes a request and waits for its response. */
  request(method: string, params: object, options: CallOptions = {}): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#end !== null) return reject(new EndingError(this.#end.message, { kind: "stopping", method }));
      if (options.signal?.aborted) return reject(new AbortedError(options.signal.reason, method));
      const id = ++this.#lastId;
      const stop = () => this.#abort(id);
      // One signal may end as many calls as its owner likes.
      if (options.signal !== undefined) setMaxListeners(0, options.signal);
      options.signal?.addEventListener("abort", stop, { once: true });
      const stopListening = () => options.signal?.removeEventListener("abort", stop);
      this.#pending.set(id, { method, options, resolve, reject, left: false, stopListening });
      const progress = options.onProgress === undefined ? {} : { progress: true };
      this.#socket.ref();
      this.usedAt = Date.now();
      this.#send(JSON.stringify({ jsonrpc: "2.0", id, method, ...progress, params }), options.data);
    });
  }

  /** Data is not copied into the text of the message: a stream would leave a multiple of it as garbage. */
  #send(message: string, data: Buffer | undefined): void {
    if (data === undefined) return void this.#socket.write(`${message}\n`);
    this.#socket.cork();
    this.#socket.write(`${message.slice(0, -2)},"b64":"`);
    this.#socket.write(data.toString("base64"), "latin1");
    this.#socket.write('"}}\n');
    this.#socket.uncork();
  }

  /** Reads nothing more for now; what was read already still comes. */
  pauseReading(): void {
    this.#socket.pause();
  }

  /** Goes on reading. */
  resumeReading(): void {
    this.#socket.resume();
  }

  /** Ends the connection; requests that wait fail. */
  close(): void {
    this.#socket.destroy();
    this.#close("the connection was closed");
  }

  /** Ends the connection once no request waits on it. */
  retire(): void {
    this.#isRetired = true;
    if (this.#pending.size === 0 && this.handles === 0) this.close();
  }

  #abort(id: number): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    if (CANCELLABLE.has(pending.method)) {
      this.#socket.write(JSON.stringify({ jsonrpc: "2.0", method: "cancel", params: { id } }) + "\n");
      return;
    }
    // The response still comes, and the next one after it: the connection stays as it is.
    pending.left = true;
    pending.stopListening();
    pending.reject(new AbortedError(pending.options.signal?.reason, pending.method));
  }

  /** What was read; its memory is used again after this. */
  #take(chunk: Buffer): void {
    let from = 0;
    for (let to = chunk.indexOf(10); to !== -1; to = chunk.indexOf(10, from)) {
      const last = chunk.subarray(from, to);
      from = to + 1;
      if (this.#lineLength === 0) {
        this.#hear(last.toString());
        continue;
      }
      this.#keep(last);
      const length = this.#lineLength;
      this.#lineLength = 0;
      this.#hear(this.#line.toString("utf8", 0, length));
    }
    this.#keep(chunk.subarray(from));
  }

  #keep(part: Buffer): void {
    const length = this.#lineLength + part.length;
    if (length > this.#line.length) {
      const longer = Buffer.allocUnsafe(2 * length);
      this.#line.copy(longer, 0, 0, this.#lineLength);
      this.#line = longer;
    }
    part.copy(this.#line, this.#lineLength);
    this.#lineLength = length;
  }

  #hear(line: string): void {
    let message: { id?: unknown; method?: string; params?: unknown; result?: unknown; error?: unknown };
    try {
      message = JSON.parse(line) as typeof message;
    } catch {
      this.#isInvalid = true;
      this.#socket.destroy();
      return this.#close("the daemon sent an invalid message");
    }
    if (message.method !== undefined) return this.#notified(message.method, message.params);
    if (typeof message.id === "number") return this.#answered(message.id, message);
    // A connection that is refused gets an answer without id.
    for (const id of [...this.#pending.keys()]) this.#answered(id, message);
  }

  #notified(method: string, params: unknown): void {
    const { id, done, total, b64 } = params as { id: number; done: number; total: number; b64: string };
    const pending = this.#pending.get(id);
    if (pending === undefined || pending.left) return;
    if (method === "progress") pending.options.onProgress?.({ done, total });
    if (method === "data") pending.options.onData?.(Buffer.from(b64, "base64"));
  }

  #answered(id: number, message: { result?: unknown; error?: unknown }): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#forget(id, pending);
    if (!pending.left) this.#settle(pending, message);
    this.#onFree();
  }

  #settle(pending: Pending, message: { result?: unknown; error?: unknown }): void {
    if (message.error === undefined) return pending.resolve(message.result);
    const error = ofFault(message.error, pending.method, pending.options.path ?? null);
    const aborted = error.kind === "cancelled" && pending.options.signal?.aborted;
    pending.reject(aborted ? new AbortedError(pending.options.signal?.reason, pending.method) : error);
  }

  #forget(id: number, pending: Pending): void {
    this.#pending.delete(id);
    pending.stopListening();
    this.usedAt = Date.now();
    // A connection that waits for nothing does not keep the process from ending.
    if (this.#pending.size > 0) return;
    this.#socket.unref();
    if (this.#isRetired) this.retire();
  }

  #close(why: string, cause?: unknown): void {
    if (this.#end !== null) return;
    this.#end = new AgentVfsError(why, { kind: "broken", cause });
    const unread = isUnread(cause) ? this.#lastId : null;
    for (const [id, pending] of [...this.#pending]) {
      this.#forget(id, pending);
      const { method, options } = pending;
      const hint = "whether it was done is not known; the next call connects again";
      const broken = () => new BrokenError(why, { kind: "broken", method, hint, cause, path: options.path ?? null });
      if (!pending.left) pending.reject(id === unread ? new EndingError(why, { kind: "stopping", method, cause }) : broken());
    }
    this.#onFree();
  }
}

/**
 * Whether a connection ended with something unread at the other end, so that the last request was not carried out: a write
 * after the end fails with EPIPE, and a peer that ends with unread data leaves ECONNRESET (unix_release_sock in
 * net/unix/af_unix.c).
 */
function isUnread(cause: unknown): boolean {
  const code = (cause as NodeJS.ErrnoException | undefined)?.code;
  return code === "EPIPE" || code === "ECONNRESET";
}

/** A socket, and who gets what it reads: all of it in one piece of memory, which is used again and again. */
interface Connected {
  socket: Socket;
  reader: { take: (chunk: Buffer) => void };
}

/** A socket that is connected; null if nobody listens. */
async function connect(path: string): Promise<Connected | null> {
  const reader = { take: (_chunk: Buffer) => {} };
  const callback = (length: number, buffer: Uint8Array) => {
    reader.take(Buffer.from(buffer.buffer, buffer.byteOffset, length));
    return true;
  };
  const onread = { buffer: new Uint8Array(READ_BYTES), callback };
  const socket = new Socket({ onread } as ConstructorParameters<typeof Socket>[0]);
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
      socket.connect(path);
    });
    checkOwner(path);
    socket.removeAllListeners("connect").removeAllListeners("error");
    return { socket, reader };
  } catch (cause) {
    socket.destroy();
    if (cause instanceof AgentVfsError) throw cause;
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ECONNREFUSED" || code === "ENOTDIR") return null;
    if (code === "EAGAIN" || code === "ECONNRESET") throw new EndingError(message, { kind: "stopping", cause });
    throw new NoDaemonError(`cannot reach the daemon: ${message}`, { kind: "no-daemon", cause });
  }
}
