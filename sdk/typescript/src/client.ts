/**
 * Requests to the daemon of a home, over as many connections as they need: a daemon that is not there is started, a
 * connection that has ended is made again.
 *
 * Invariant: a request that changes something is sent again only if the daemon said that it did nothing.
 */

// Not the global ones: just-bash takes those away while a script of its runs.
import { setImmediate, setTimeout } from "node:timers";
import { Connection, onlyLooks, type CallOptions, type Hello } from "./connection.js";
import { AbortedError, BrokenError, EndingError, NoDaemonError } from "./errors.js";
import { findHome, type Home } from "./home.js";
import { environmentOf, programOf, startDaemon } from "./launch.js";

/** Most connections of one client. */
const CONNECTIONS_MAX = 4;
/** How long a daemon that ends, or is being replaced, is waited for. */
const DEADLINE_MS = 15_000;
/** Pause between two attempts to connect. */
const PAUSE_MS = 5;
/** A connection that was not used for so long may just be closed by the daemon (which does so after 10 minutes). */
const UNUSED_MS = 540_000;
/** After so long without use, a connection's end may have happened and not have been seen yet. */
const UNSEEN_MS = 20;

/** Where the daemon is, and how it is started. */
export interface ClientOptions {
  /** The home; otherwise `$AGENTVFS_HOME`, `$XDG_DATA_HOME/agentvfs` or `~/.local/share/agentvfs`. */
  home?: string | undefined;
  /** The `agentvfs` program; otherwise `$AGENTVFS_BIN`, or `agentvfs` on `$PATH`. */
  program?: string | undefined;
}

/** A client of one home's daemon. All workspaces that it opens share its connections. */
export class Client {
  /** The home. */
  readonly home: Home;
  /** The `agentvfs` program. */
  readonly program: string;
  /** Environment of programs that are started: as it is now, since just-bash hides it while a script of its runs. */
  readonly environment: NodeJS.ProcessEnv;
  #connections: Connection[] = [];
  #opening = 0;
  #waiting: (() => void)[] = [];
  #starting: Promise<void> | null = null;

  /** Nothing is connected, and no daemon started, before the first request. Of another client it has all but its connections. */
  constructor(options: ClientOptions | Client = {}) {
    if (options instanceof Client) {
      this.home = options.home;
      this.program = options.program;
      this.environment = options.environment;
      return;
    }
    this.home = findHome(options.home);
    this.program = programOf(options.program);
    this.environment = environmentOf(this.home);
  }

  /** Makes a request of docs/protocol.md. */
  async call<R>(method: string, params: object = {}, options: CallOptions = {}): Promise<R> {
    return (await this.pinned<R>(method, params, options))[0];
  }

  /** @internal The same, with the connection that it was made on. */
  async pinned<R>(method: string, params: object, options: CallOptions): Promise<[R, Connection]> {
    const deadline = Date.now() + DEADLINE_MS;
    let repeated = false;
    for (;;) {
      const connection = await this.take(options.signal, !onlyLooks(method));
      try {
        return [(await connection.request(method, params, options)) as R, connection];
      } catch (error) {
        // The end of the daemon is the end of all its connections, whether that was seen or not.
        if (!connection.isOpen) this.#retire((one) => one.hello.pid === connection.hello.pid);
        const isEnding = error instanceof EndingError && Date.now() < deadline;
        const mayRepeat: boolean = error instanceof BrokenError && onlyLooks(method) && !repeated && options.onData === undefined;
        repeated ||= mayRepeat;
        if (!mayRepeat && !isEnding) throw ended(error);
        this.#retire((one) => one === connection);
        if (isEnding) await pause();
      }
    }
  }

  /** Who answers. */
  async hello(): Promise<Hello> {
    return (await this.take()).hello;
  }

  /** Closes the connections. The daemon and the mounts go on; a later call connects again. */
  close(): void {
    for (const connection of this.#connections.splice(0)) connection.close();
  }

  /** @internal A connection that takes one more request; one to change something does not wait behind another. */
  async take(signal?: AbortSignal, changes = false): Promise<Connection> {
    const deadline = Date.now() + DEADLINE_MS;
    for (;;) {
      const found = signal?.aborted ? null : await this.#free(changes && !this.#isFull);
      // One that was woken may leave a place to the next.
      if (signal?.aborted || found !== null) this.#wake();
      if (signal?.aborted) throw new AbortedError(signal.reason);
      if (found !== null) return found;
      if (this.#isFull) await this.#freed(signal);
      else await this.#open(deadline);
    }
  }

  /** No more requests go to these connections. */
  #retire(which: (one: Connection) => boolean): void {
    for (const connection of this.#connections.filter(which)) connection.retire();
    this.#connections = this.#connections.filter((one) => !which(one));
  }

  get #isFull(): boolean {
    return this.#connections.length + this.#opening >= CONNECTIONS_MAX;
  }

  async #free(unchanging: boolean): Promise<Connection | null> {
    const old = this.#connections.filter((c) => c.inFlight === 0 && c.handles === 0 && Date.now() - c.usedAt > UNUSED_MS);
    for (const connection of old) connection.close();
    this.#connections = this.#connections.filter((c) => c.isOpen);
    const able = this.#connections.filter((c) => c.inFlight < c.capacity && !(unchanging && c.isChanging));
    const free = able.sort((a, b) => a.inFlight - b.inFlight)[0];
    if (free === undefined) return null;
    if (Date.now() - free.usedAt <= UNSEEN_MS) return free;
    await new Promise((resolve) => setImmediate(resolve));
    const usable = free.isOpen && free.inFlight < free.capacity;
    if (usable) free.usedAt = Date.now();
    return usable ? free : this.#free(unchanging);
  }

  async #open(deadline: number): Promise<void> {
    this.#opening++;
    try {
      for (;;) {
        const connection = await this.#connect();
        if (connection !== null) {
          this.#connections.push(connection);
          return;
        }
        if (Date.now() > deadline) throw new NoDaemonError("the daemon ends again and again", { kind: "no-daemon" });
        await pause();
      }
    } finally {
      this.#opening--;
      this.#wake();
    }
  }

  async #connect(): Promise<Connection | null> {
    try {
      const connection = await Connection.open(this.home.socket, () => this.#wake());
      if (connection !== null) return connection;
    } catch (error) {
      if (error instanceof EndingError) return null;
      throw error;
    }
    if (this.home.ofRun) throw new NoDaemonError("nobody listens at $AGENTVFS_SOCKET", { kind: "no-daemon", hint: OF_RUN });
    this.#starting ??= startDaemon(this.program, this.environment).finally(() => (this.#starting = null));
    await this.#starting;
    return null;
  }

  /** Waits until a request or a connection has ended. */
  async #freed(signal?: AbortSignal): Promise<void> {
    let wake!: () => void;
    const woken = new Promise<void>((resolve) => (wake = resolve));
    this.#waiting.push(wake);
    signal?.addEventListener("abort", wake, { once: true });
    await woken;
    signal?.removeEventListener("abort", wake);
    this.#waiting = this.#waiting.filter((one) => one !== wake);
  }

  #wake(): void {
    this.#waiting.shift()?.();
  }
}

const OF_RUN = "this is the sandbox of a run, or $AGENTVFS_SOCKET is set: unset it outside of one";

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
}

/** What a caller is told if the daemon ended before it did anything, again and again. */
function ended(error: unknown): unknown {
  if (!(error instanceof EndingError)) return error;
  return new NoDaemonError(error.message, { kind: "no-daemon", method: error.method, cause: error });
}
