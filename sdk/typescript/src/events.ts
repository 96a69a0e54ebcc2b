/**
 * What happens in a workspace, as it happens (docs/events.md).
 *
 * It has a connection of its own, which is read only as fast as its consumer takes events, so a slow one delays nothing
 * else: the daemon then keeps the newest events, and tells by one with `op` `lost` how many are missing.
 */

// Not the global one: just-bash takes it away while a script of its runs.
import { setTimeout } from "node:timers";
import { Client } from "./client.js";
import type { Connection } from "./connection.js";
import { AbortedError, BrokenError, EndingError } from "./errors.js";
import type { Abortable } from "./files.js";

/** The method. */
const SUBSCRIBE = "events.subscribe";
/** Parts of the stream that wait for the consumer until no more are read. */
const PARTS_MAX = 16;
/** Pause before a daemon that ended is looked for again. */
const PAUSE_MS = 100;
/** Times that it is looked for in a row. */
const TRIES_MAX = 50;

/** What happened: ContextFS's sixteen fields, and texts. */
export interface Event {
  /** Nanoseconds since 1970. */
  ts: bigint;
  /** Number of the session: that of its branch. */
  session_id: number;
  /** Number of the branch. */
  branch_id: number;
  /** Version of the policy; 0 without one. */
  policy_version: number;
  /** What happened, such as `create`, `write`, `rename`, `checkpoint`, or `lost`: events before this one are missing. */
  op: string;
  /** What was decided. */
  verdict: string;
  /** Device of the mount. */
  dev: number;
  /** Number of the inode, or 0. */
  ino: bigint;
  /** Generation of that number. */
  i_generation: number;
  /** Path from the workspace's root. */
  path: string;
  /** Process; 0 if it is not known. */
  pid: number;
  /** Its user. */
  uid: number;
  /** Its group. */
  gid: number;
  /** Bytes that were written. */
  bytes: number;
  /** Nanoseconds from the request to the change. */
  latency_ns: number;
  /** By which way it came. */
  backend: string;
  /** Texts that there may be; `seq`, the event's number, is always there. */
  extra: { seq: string } & Partial<Record<ExtraKey, string>>;
}

/** Keys of `extra` besides `seq`. */
type ExtraKey = "workspace" | "branch" | "call" | "comm" | "path2" | "result" | "path_b64" | "path2_b64" | "count" | "detail";

/** Which events are wanted. */
export interface WatchOptions extends Abortable {
  /** Number of an event (`event.extra.seq`): those after it come first. Otherwise those that happen from now on. */
  since?: string | number;
  /** Patterns for paths and directories that they are in; none: all. */
  paths?: string[];
  /** Operations; none: all. */
  ops?: string[];
  /** Names of branches: the one of the workspace, if nothing else is said; `[]`: all. */
  branches?: string[];
  /** Go on with what happens later (true); otherwise the events end where there are no more. */
  follow?: boolean;
}

/** @internal The events of a workspace. */
export async function* watch(client: Client, place: { workspace: string; branch: string }, options: WatchOptions): AsyncGenerator<Event, void, undefined> {
  const { signal, ops = [], paths = [], branches = [place.branch], follow = true } = options;
  const params = { workspace: place.workspace, filter: { branches, ops, paths }, follow };
  let since = options.since === undefined ? undefined : Number(options.since);
  let tries = 0;
  for (;;) {
    const apart = new Client(client);
    try {
      const parts = new Parts(await apart.take(signal));
      parts.ask(since === undefined ? params : { ...params, since }, signal);
      for await (const event of parts.events()) {
        since = Number(event.extra.seq);
        tries = 0;
        yield event;
        if (signal?.aborted) throw new AbortedError(signal.reason, SUBSCRIBE);
      }
      return;
    } catch (error) {
      const isOver = error instanceof BrokenError || error instanceof EndingError;
      if (!isOver || ++tries > TRIES_MAX) throw error;
      // What happened since it ended is told, or told as lost.
      if (error instanceof BrokenError) since ??= 0;
    } finally {
      apart.close();
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** The data of one request, as it comes. */
class Parts {
  readonly #connection: Connection;
  #waiting: Buffer[] = [];
  /** The request has ended: with an error, or null. */
  #end: { error: unknown } | null = null;
  #wake: () => void = () => {};

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Makes the request. */
  ask(params: object, signal: AbortSignal | undefined): void {
    const onData = (part: Buffer) => {
      this.#waiting.push(part);
      if (this.#waiting.length >= PARTS_MAX) this.#connection.pauseReading();
      this.#wake();
    };
    const ended = (error: unknown) => {
      this.#end = { error };
      this.#wake();
    };
    this.#connection.request(SUBSCRIBE, params, { signal, onData }).then(() => ended(null), ended);
  }

  /** The events, until the response. */
  async *events(): AsyncGenerator<Event, void, undefined> {
    let rest = Buffer.alloc(0);
    for (;;) {
      const part = this.#waiting.shift();
      if (part === undefined) {
        if (this.#end !== null && this.#end.error !== null) throw this.#end.error;
        if (this.#end !== null) return;
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      if (this.#waiting.length < PARTS_MAX) this.#connection.resumeReading();
      const bytes = Buffer.concat([rest, part]);
      const end = bytes.lastIndexOf(10) + 1;
      rest = bytes.subarray(end);
      for (const line of bytes.toString("utf8", 0, end).split("\n")) {
        if (line !== "") yield parsed(line);
      }
    }
  }
}

/** An event. Two of its numbers are larger than a number of JavaScript is exact: both stand before all texts. */
function parsed(line: string): Event {
  const event = JSON.parse(line) as Event;
  event.ts = BigInt(/"ts":(\d+)/.exec(line)?.[1] ?? 0);
  event.ino = BigInt(/"ino":(\d+)/.exec(line)?.[1] ?? 0);
  return event;
}
