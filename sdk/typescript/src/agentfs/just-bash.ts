/**
 * agentfs-sdk's file system for just-bash, as it is there: symbolic links are files that name their target, hard links are
 * copies. `agentvfs/just-bash` has real ones.
 *
 * @packageDocumentation
 */

import { bytesOf, encodingOf, normalPath, resolvedPath, type EncodingOption } from "../encoding.js";
import { type BashEntry } from "../just-bash.js";
import { AgentFS, type AgentFSOptions } from "./index.js";
import type { FileSystem, Stats } from "./interface.js";

/** Something that has a file system, such as an `AgentFS`. */
export interface AgentFsHandle {
  fs: FileSystem;
}

/** What a wrapper is made of. */
export interface AgentFsOptions {
  /** The agent. */
  fs: AgentFsHandle;
  /** The directory that just-bash sees it at (`/`). */
  mountPoint?: string;
}

/** What is known of a file, as just-bash wants it. */
export interface FsStat {
  isFile: boolean;
  isDirectory: boolean;
  isSymbolicLink: boolean;
  mode: number;
  size: number;
  mtime: Date;
}

/** agentfs-sdk's `AgentFsWrapper`: the `IFileSystem` of just-bash. */
export class AgentFsWrapper {
  readonly #fs: FileSystem;
  readonly #mountPoint: string;

  constructor(options: AgentFsOptions) {
    const point = options.mountPoint ?? "/";
    if (!point.startsWith("/")) throw new Error(`Mount point must be an absolute path: ${point}`);
    this.#fs = options.fs.fs;
    this.#mountPoint = point === "/" ? "/" : point.replace(/\/+$/, "");
  }

  /** The directory that just-bash sees it at. */
  getMountPoint(): string {
    return this.#mountPoint;
  }

  #inside(path: string): string {
    const at = normalPath(path);
    if (this.#mountPoint === "/" || !`${at}/`.startsWith(`${this.#mountPoint}/`)) return at;
    return at.slice(this.#mountPoint.length) || "/";
  }

  async readFile(path: string, options?: EncodingOption): Promise<string> {
    return Buffer.from(await this.readFileBuffer(path)).toString(encodingOf(options));
  }

  async readFileBuffer(path: string): Promise<Uint8Array> {
    return new Uint8Array(await as("open", path, this.#fs.readFile(this.#inside(path))));
  }

  async writeFile(path: string, content: string | Uint8Array, options?: EncodingOption): Promise<void> {
    await this.#fs.writeFile(this.#inside(path), Buffer.from(bytesOf(content, options)));
  }

  async appendFile(path: string, content: string | Uint8Array, options?: EncodingOption): Promise<void> {
    const before = await this.readFileBuffer(path).catch((error: unknown) => {
      if (codeOf(error) === "ENOENT") return new Uint8Array();
      throw error;
    });
    await this.writeFile(path, Buffer.concat([before, bytesOf(content, options)]));
  }

  async exists(path: string): Promise<boolean> {
    return this.#fs.access(this.#inside(path)).then(() => true, () => false);
  }

  async stat(path: string): Promise<FsStat> {
    return ofStats(await as("stat", path, this.#fs.stat(this.#inside(path))));
  }

  async lstat(path: string): Promise<FsStat> {
    return this.stat(path);
  }

  async mkdir(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const at = normalPath(path);
    const parent = normalPath(`${at}/..`);
    if (options.recursive && parent !== "/" && !(await this.exists(parent))) await this.mkdir(parent, options);
    await as("mkdir", path, this.#fs.mkdir(this.#inside(at))).catch((error: unknown) => {
      if (!options.recursive || codeOf(error) !== "EEXIST") throw error;
    });
  }

  async readdir(path: string): Promise<string[]> {
    return (await as("scandir", path, this.#fs.readdir(this.#inside(path)))).sort();
  }

  async readdirWithFileTypes(path: string): Promise<BashEntry[]> {
    const entries = await as("scandir", path, this.#fs.readdirPlus(this.#inside(path)));
    return entries.map(({ name, stats }) => ({
      name,
      isFile: stats.isFile(),
      isDirectory: stats.isDirectory(),
      isSymbolicLink: stats.isSymbolicLink(),
    }));
  }

  async rm(path: string, options: { recursive?: boolean; force?: boolean } = {}): Promise<void> {
    const at = this.#inside(path);
    const removed = this.#fs.rm(at, options).catch((error: unknown) => {
      // Without `recursive` an empty directory is removed all the same.
      if (codeOf(error) === "EISDIR") return this.#fs.rmdir(at);
      throw error;
    });
    await as("rm", path, removed);
  }

  async cp(src: string, dest: string, options: { recursive?: boolean } = {}): Promise<void> {
    const stat = await this.stat(src);
    if (!stat.isDirectory) return as("cp", src, this.#fs.copyFile(this.#inside(src), this.#inside(dest)));
    if (!options.recursive) throw new Error(`EISDIR: is a directory, cp '${src}'`);
    await this.mkdir(dest, { recursive: true });
    for (const name of await this.readdir(src)) await this.cp(`${src}/${name}`, `${dest}/${name}`, options);
  }

  async mv(src: string, dest: string): Promise<void> {
    await as("mv", src, this.#fs.rename(this.#inside(src), this.#inside(dest)));
  }

  resolvePath(base: string, path: string): string {
    return resolvedPath(base, path);
  }

  /** Nothing: just-bash then asks for the directories that a pattern needs. */
  getAllPaths(): string[] {
    return [];
  }

  /** Does nothing, as there: agentfs-sdk has no such call. */
  async chmod(path: string, _mode: number): Promise<void> {
    await this.#mustExist("chmod", path);
  }

  /** Does nothing, as `chmod`. */
  async utimes(path: string, _atime: Date, _mtime: Date): Promise<void> {
    await this.#mustExist("utimes", path);
  }

  async symlink(target: string, linkPath: string): Promise<void> {
    if (await this.exists(linkPath)) throw new Error(`EEXIST: file already exists, symlink '${linkPath}'`);
    await this.writeFile(linkPath, JSON.stringify({ __symlink: target }));
  }

  async link(existingPath: string, newPath: string): Promise<void> {
    if (!(await this.stat(existingPath)).isFile) throw new Error(`EPERM: operation not permitted, link '${existingPath}'`);
    if (await this.exists(newPath)) throw new Error(`EEXIST: file already exists, link '${newPath}'`);
    await this.#fs.copyFile(this.#inside(existingPath), this.#inside(newPath));
  }

  async readlink(path: string): Promise<string> {
    await this.#mustExist("readlink", path);
    const target = await this.readFile(path).then(targetIn, () => null);
    if (target === null) throw new Error(`EINVAL: invalid argument, readlink '${path}'`);
    return target;
  }

  /** The path itself: there are no symbolic links to be resolved. */
  async realpath(path: string): Promise<string> {
    await this.#mustExist("realpath", path);
    return normalPath(path);
  }

  async #mustExist(call: string, path: string): Promise<void> {
    if (!(await this.exists(path))) throw new Error(`ENOENT: no such file or directory, ${call} '${path}'`);
  }
}

/** The target that a file names which stands for a symbolic link; null for any other file. */
function targetIn(content: string): string | null {
  try {
    const { __symlink } = JSON.parse(content) as { __symlink?: unknown };
    return typeof __symlink === "string" ? __symlink : null;
  } catch {
    return null;
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as { code?: string }).code;
}

const TEXTS: Record<string, string | undefined> = {
  ENOENT: "no such file or directory",
  EEXIST: "file already exists",
  ENOTEMPTY: "directory not empty",
};

/** The result of a call, its errors in the words of just-bash: with the path that just-bash gave. */
async function as<T>(call: string, path: string, made: Promise<T>): Promise<T> {
  try {
    return await made;
  } catch (error) {
    const code = codeOf(error);
    const text = code && TEXTS[code];
    if (!text) throw error;
    throw Object.assign(new Error(`${code}: ${text}, ${call} '${path}'`, { cause: error }), { code });
  }
}

function ofStats(stats: Stats): FsStat {
  return {
    isFile: stats.isFile(),
    isDirectory: stats.isDirectory(),
    isSymbolicLink: stats.isSymbolicLink(),
    mode: stats.mode,
    size: stats.size,
    mtime: new Date(stats.mtime * 1000),
  };
}

/** The file system of just-bash on an agent, its file system, or one that is opened. */
export async function agentfs(given: AgentFsHandle | FileSystem | AgentFSOptions, mountPoint?: string): Promise<AgentFsWrapper> {
  const more = mountPoint === undefined ? {} : { mountPoint };
  if ("fs" in given && typeof given.fs?.stat === "function") return new AgentFsWrapper({ fs: given, ...more });
  if ("stat" in given && typeof given.stat === "function") return new AgentFsWrapper({ fs: { fs: given }, ...more });
  return new AgentFsWrapper({ fs: await AgentFS.open(given as AgentFSOptions), ...more });
}
