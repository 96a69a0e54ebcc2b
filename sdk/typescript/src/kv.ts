/** Key-value state of a branch: it is committed, rolled back and merged with the files. */

import type { Client } from "./client.js";
import { AgentVfsError } from "./errors.js";
import type { Abortable } from "./files.js";
import { jsonText, ofMoment, ofText, type State, type WireBytes, type WireMoment } from "./wire.js";

interface WireEntry {
  key: string;
  value: WireBytes;
  created: WireMoment;
  updated: WireMoment;
}

/** A key with its value. */
export interface KvEntry<T = unknown> {
  /** The key. */
  key: string;
  /** Its value. */
  value: T;
  /** The value as the JSON text that is stored. */
  text: string;
  /** When the key was set first. */
  created: Date;
  /** When it was set last. */
  updated: Date;
}

/** Key-value state of one state of a branch, to be read. */
export class KvView {
  /** @internal */
  constructor(
    protected readonly client: Client,
    protected readonly place: { workspace: string; branch: string },
    private readonly state: State = "live",
  ) {}

  /** A key's value; `undefined` if there is no such key. */
  async get<T = unknown>(key: string, options: Abortable = {}): Promise<T | undefined> {
    return (await this.entry<T>(key, options))?.value;
  }

  /** The same with its times. */
  async entry<T = unknown>(key: string, options: Abortable = {}): Promise<KvEntry<T> | undefined> {
    try {
      const params = { ...this.place, state: this.state, key };
      return ofEntry<T>(await this.client.call<WireEntry>("kv.get", params, { signal: options.signal }));
    } catch (error) {
      if (error instanceof AgentVfsError && error.kind === "no-such-key") return undefined;
      throw error;
    }
  }

  /** The keys that begin with `prefix`, in order. */
  async list<T = unknown>(prefix = "", options: Abortable = {}): Promise<KvEntry<T>[]> {
    const all = [];
    for await (const entry of this.entries<T>(prefix, options)) all.push(entry);
    return all;
  }

  /** The same, some at a time. */
  async *entries<T = unknown>(prefix = "", options: Abortable = {}): AsyncGenerator<KvEntry<T>, void, void> {
    type Page = { entries: WireEntry[]; more: boolean };
    let after: string | null = null;
    for (let more = true; more; ) {
      const params: object = { ...this.place, state: this.state, prefix, after };
      const page: Page = await this.client.call<Page>("kv.list", params, { signal: options.signal });
      for (const entry of page.entries) yield ofEntry<T>(entry);
      after = page.entries.at(-1)?.key ?? null;
      more = page.more;
    }
  }
}

/** Key-value state of a branch as it is now. */
export class Kv extends KvView {
  /** The state as a commit, a label or another ref has it, or as the base has it. */
  at(state: string | State): KvView {
    const named = typeof state === "string" && state !== "live" && state !== "base" ? { ref: state } : (state as State);
    return new KvView(this.client, this.place, named);
  }

  /** Sets a key to a value that JSON can express; it is on stable storage when the call returns. */
  async set(key: string, value: unknown, options: Abortable & { unsynced?: boolean } = {}): Promise<void> {
    await this.setText(key, jsonText(value), options);
  }

  /** Sets a key to a value given as JSON text, which is stored as it is, but for white space. */
  async setText(key: string, text: string, options: Abortable & { unsynced?: boolean } = {}): Promise<void> {
    // Quotes and backslashes would double the length of a long text.
    const value = text.length < 256 * 1024 ? text : { b64: Buffer.from(text).toString("base64") };
    const params = { ...this.place, key, value, unsynced: options.unsynced || undefined };
    await this.client.call("kv.set", params, { signal: options.signal });
  }

  /** Deletes a key; says whether it existed. */
  async delete(key: string, options: Abortable & { unsynced?: boolean } = {}): Promise<boolean> {
    const params = { ...this.place, key, unsynced: options.unsynced || undefined };
    return (await this.client.call<{ deleted: boolean }>("kv.delete", params, { signal: options.signal })).deleted;
  }
}

function ofEntry<T>(entry: WireEntry): KvEntry<T> {
  const text = ofText(entry.value);
  return {
    key: entry.key,
    value: JSON.parse(text) as T,
    text,
    created: ofMoment(entry.created),
    updated: ofMoment(entry.updated),
  };
}
