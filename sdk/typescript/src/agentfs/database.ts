/**
 * What stands in place of agentfs-sdk's database connection: the workspace that a path means.
 *
 * SQL is answered for reading alone, from an export of the workspace that is made for it (docs/export.md); everything else
 * is refused. `:memory:` is a workspace in memory that is deleted at `close`.
 */

import { randomBytes } from "node:crypto";
import { readlinkSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Client, type ClientOptions } from "../client.js";
import { AgentVfsError } from "../errors.js";
import { isNotRunning, Workspace } from "../workspace.js";
import { MemoryHome, remove } from "./memory.js";
import { create, isAlive, workspaceAt } from "./place.js";

const MEMORY = "agentfs-memory-";
/** Words that begin a statement that only reads. */
const READING = /^\s*(select|with|values|explain)\b/i;
/** What connections are tuned by; it has no meaning here. */
const TUNING = /^\s*(pragma|begin|commit|rollback|end)\b/i;

/** How a database is opened. */
export interface DatabaseOptions extends ClientOptions {
  /** The project that a new workspace begins with. */
  base?: string | undefined;
}

/** A result's row, by column. */
export type Row = Record<string, unknown>;

/** agentfs-sdk's database, which is a workspace. */
export class Database {
  /** What it was opened by. */
  readonly name: string;
  /** Whether it is deleted at `close`: then nothing waits for the disk. */
  readonly memory: boolean;
  readonly #options: DatabaseOptions;
  readonly #client: Client;
  #home: MemoryHome | null = null;
  #workspace: Promise<Workspace> | null = null;
  #closed = false;

  /** Opens nothing before `connect`. */
  constructor(path: string, options: DatabaseOptions = {}) {
    this.name = path;
    this.memory = path === ":memory:";
    this.#options = options;
    this.#client = new Client(options);
  }

  /** Opens the workspace; a second time nothing happens. */
  async connect(): Promise<void> {
    await this.workspace();
  }

  /** Whether it is open. */
  get open(): boolean {
    return this.#workspace !== null && !this.#closed;
  }

  /** The workspace: with it, all that agentvfs can do can be done. */
  workspace(): Promise<Workspace> {
    if (this.#closed) return Promise.reject(new AgentVfsError(`${this.name} was closed`, { kind: "closed" }));
    this.#workspace ??= this.#opened().catch((error: unknown) => {
      this.#workspace = null;
      throw error;
    });
    return this.#workspace;
  }

  async #opened(): Promise<Workspace> {
    const { base } = this.#options;
    if (!this.memory) return workspaceAt(this.#client, resolve(this.name), base);
    // In the sandbox of a run there is no other daemon.
    this.#home = this.#client.home.ofRun ? null : MemoryHome.of(this.#client);
    if (this.#home !== null) return this.#home.take(base);
    await sweep(this.#client);
    const name = `${MEMORY}${processId()}-${randomBytes(5).toString("hex")}`;
    await create(this.#client, name, base);
    const workspace = new Workspace(this.#client, name);
    await workspace.start();
    return workspace;
  }

  /** @internal Does something with the workspace, which is started once more if somebody stopped it. */
  async use<T>(act: (workspace: Workspace) => Promise<T>): Promise<T> {
    const workspace = await this.workspace();
    try {
      return await act(workspace);
    } catch (error) {
      if (!isNotRunning(error)) throw error;
      await workspace.start();
      return act(workspace);
    }
  }

  /** Refuses every statement but those that mean nothing here, such as `PRAGMA`. */
  async exec(sql: string): Promise<void> {
    if (!TUNING.test(sql)) throw readOnly(sql);
  }

  /** A statement that reads; the export it reads from is made when it is run. */
  prepare(sql: string): Statement {
    if (!READING.test(sql) && !TUNING.test(sql)) throw readOnly(sql);
    return new Statement(this, sql);
  }

  /** Closes it; a second time nothing happens. The workspace stays, but for that of `:memory:`. */
  async close(options: { export?: string } = {}): Promise<void> {
    if (this.#closed) return;
    const workspace = await this.#workspace?.catch(() => null);
    if (workspace && options.export !== undefined) await workspace.export(options.export, { force: true });
    this.#closed = true;
    if (workspace && this.#home !== null) await this.#home.give(workspace);
    else if (workspace && this.memory) await remove(workspace);
    this.#client.close();
  }
}

/** agentfs-sdk's prepared statement, for reading. */
export class Statement {
  /** @internal */
  constructor(
    private readonly db: Database,
    private readonly sql: string,
  ) {}

  /** The first row. */
  async get(...values: unknown[]): Promise<Row | undefined> {
    return (await this.all(...values))[0];
  }

  /** All rows. */
  async all(...values: unknown[]): Promise<Row[]> {
    if (!READING.test(this.sql)) return [];
    const reader = await findReader();
    const dir = await mkdtemp(join(tmpdir(), "agentvfs-sql-"));
    try {
      const file = join(dir, "export.db");
      await this.db.use((workspace) => workspace.export(file));
      return await query(reader, file, this.sql, values);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  }

  /** Refused: nothing is written by SQL. */
  async run(..._values: unknown[]): Promise<never> {
    throw readOnly(this.sql);
  }
}

function readOnly(sql: string): AgentVfsError {
  const shown = sql.trim().split("\n")[0];
  const hint = "use fs, kv and tools; or write an export (agentvfs export), and import it";
  return new AgentVfsError(`SQL only reads a workspace: ${shown}`, { kind: "read-only", hint });
}

/** Packages that read SQLite, in the order in which they are tried. Their types are not needed here. */
const READERS: [string, (library: Library, file: string) => Opened][] = [
  ["node:sqlite", (library, file) => new library.DatabaseSync!(file, { readOnly: true })],
  ["better-sqlite3", (library, file) => new library.default!(file, { readonly: true })],
  ["@tursodatabase/database", (library, file) => new library.Database!(file)],
];

interface Opened {
  connect?(): Promise<unknown>;
  prepare(sql: string): { all(...values: unknown[]): Row[] | Promise<Row[]> };
  close(): unknown;
}

type Library = Record<"DatabaseSync" | "default" | "Database", (new (file: string, options?: object) => Opened) | undefined>;
type Reader = (file: string) => Opened;

async function findReader(): Promise<Reader> {
  for (const [name, opener] of READERS) {
    const library = await (import(name) as Promise<Library>).catch(() => null);
    if (library !== null) return (file) => opener(library, file);
  }
  const why = `SQL needs a package that reads SQLite, and Node ${process.versions.node} has none`;
  throw new AgentVfsError(why, { kind: "no-sqlite", hint: "npm install better-sqlite3, or use Node 22.13 or later" });
}

async function query(reader: Reader, file: string, sql: string, values: unknown[]): Promise<Row[]> {
  const opened = reader(file);
  try {
    await opened.connect?.();
    return (await opened.prepare(sql).all(...values)).map((row) => ({ ...row }));
  } finally {
    await opened.close();
  }
}

/** This process, and the namespace in which its number means something. */
function processId(): string {
  let namespace = "0";
  try {
    namespace = /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "0";
  } catch {
    // Without /proc there is no other namespace to tell it from.
  }
  return `${namespace}-${process.pid}`;
}

let isSwept = false;

/** Deletes, once in a process, the workspaces of `:memory:` that processes left in the usual home which are gone. */
async function sweep(client: Client): Promise<void> {
  if (isSwept) return;
  isSwept = true;
  const [namespace] = processId().split("-");
  for (const { name } of await Workspace.list({ client })) {
    const [, of, pid] = /^agentfs-memory-(\d+)-(\d+)-/.exec(name) ?? [];
    if (of === namespace && !isAlive(Number(pid))) await remove(new Workspace(client, name)).catch(() => {});
  }
}
