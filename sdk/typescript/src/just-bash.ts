/**
 * A branch as the file system of just-bash: what its commands change is in the workspace, can be rolled back, and is seen
 * in the mount.
 *
 * ```ts
 * import { Bash } from "just-bash";
 * import { WorkspaceFs } from "agentvfs/just-bash";
 *
 * const bash = new Bash({ fs: new WorkspaceFs(workspace), cwd: "/" });
 * ```
 *
 * @packageDocumentation
 */

import { link, lstat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { bytesOf, encodingOf, normalPath, resolvedPath, type EncodingOption } from "./encoding.js";
import { FileError } from "./errors.js";
import type { FileInfo } from "./files.js";
import type { Workspace } from "./workspace.js";

export type { BashEncoding, EncodingOption } from "./encoding.js";

/** What is known of a file, as just-bash wants it. */
export interface BashStat {
  isFile: boolean;
  isDirectory: boolean;
  isSymbolicLink: boolean;
  mode: number;
  size: number;
  mtime: Date;
  ino: number;
}

/** An entry of a directory, as just-bash wants it. */
export interface BashEntry {
  name: string;
  isFile: boolean;
  isDirectory: boolean;
  isSymbolicLink: boolean;
}

const TEXTS: Record<string, string | undefined> = {
  ENOENT: "no such file or directory",
  EEXIST: "file already exists",
  EISDIR: "illegal operation on a directory",
  ENOTDIR: "not a directory",
  ENOTEMPTY: "directory not empty",
  EINVAL: "invalid argument",
  ELOOP: "too many levels of symbolic links",
  EXDEV: "the path leads out of the workspace",
};

/** The `IFileSystem` of just-bash on a branch of a workspace. */
export class WorkspaceFs {
  /** @param root directory of the workspace that is `/` for just-bash */
  constructor(
    private readonly workspace: Workspace,
    private readonly root = "",
  ) {}

  /** A file's text. */
  async readFile(path: string, options?: EncodingOption): Promise<string> {
    const content = await this.#at("open", path, (at) => this.workspace.files.read(at));
    return content.toString(encodingOf(options));
  }

  /** A file's bytes. */
  async readFileBuffer(path: string): Promise<Uint8Array> {
    return new Uint8Array(await this.#at("open", path, (at) => this.workspace.files.read(at)));
  }

  /** Writes a file; missing directories are created. */
  async writeFile(path: string, content: string | Uint8Array, options?: EncodingOption): Promise<void> {
    await this.#at("open", path, (at) => this.workspace.files.write(at, bytesOf(content, options), { parents: true }));
  }

  /** Appends to a file; it and missing directories are created. */
  async appendFile(path: string, content: string | Uint8Array, options?: EncodingOption): Promise<void> {
    await this.#at("open", path, (at) => this.workspace.files.append(at, bytesOf(content, options), { parents: true }));
  }

  /** Whether a path leads to something. */
  async exists(path: string): Promise<boolean> {
    return this.stat(path).then(() => true, () => false);
  }

  /** What is known of a file, links followed. */
  async stat(path: string): Promise<BashStat> {
    return statOf(await this.#at("stat", path, (at) => this.workspace.files.stat(at)));
  }

  /** The same of a symbolic link itself. */
  async lstat(path: string): Promise<BashStat> {
    return statOf(await this.#at("lstat", path, (at) => this.workspace.files.lstat(at)));
  }

  /** Creates a directory. */
  async mkdir(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.#at("mkdir", path, (at) => this.workspace.files.mkdir(at, { parents: options.recursive ?? false }));
  }

  /** Names in a directory. */
  async readdir(path: string): Promise<string[]> {
    return (await this.readdirWithFileTypes(path)).map((entry) => entry.name);
  }

  /** Entries of a directory. */
  async readdirWithFileTypes(path: string): Promise<BashEntry[]> {
    const entries = await this.#at("scandir", path, (at) => this.workspace.files.list(at));
    return entries.map((e) => ({ name: e.name, isFile: e.isFile(), isDirectory: e.isDirectory(), isSymbolicLink: e.isSymbolicLink() }));
  }

  /** Removes a file or an empty directory, or with `recursive` any directory. */
  async rm(path: string, options: { recursive?: boolean; force?: boolean } = {}): Promise<void> {
    await this.#at("rm", path, (at) => this.workspace.files.remove(at, options));
  }

  /** Copies a file, or with `recursive` a directory. */
  async cp(from: string, to: string, options: { recursive?: boolean } = {}): Promise<void> {
    const info = await this.#at("cp", from, (at) => this.workspace.files.lstat(at));
    if (info.isSymbolicLink() && options.recursive) return this.symlink(info.target!, to);
    if (!info.isDirectory()) return this.#at("cp", from, (at) => this.workspace.files.copy(at, this.#place(to)));
    if (!options.recursive) throw wrapped(new Error("is a directory"), "EISDIR", "cp", from);
    if (`${normalPath(to)}/`.startsWith(`${normalPath(from)}/`)) throw wrapped(new Error(), "EINVAL", "cp", to);
    await this.mkdir(to, { recursive: true });
    for (const name of await this.readdir(from)) await this.cp(`${from}/${name}`, `${to}/${name}`, options);
  }

  /** Gives a file or directory another path. */
  async mv(from: string, to: string): Promise<void> {
    await this.#at("rename", from, (at) => this.workspace.files.rename(at, this.#place(to)));
  }

  /** A path that counts from a directory. */
  resolvePath(base: string, path: string): string {
    return resolvedPath(base, path);
  }

  /** Nothing: just-bash then asks for the directories that a pattern needs. */
  getAllPaths(): string[] {
    return [];
  }

  /** Sets permission bits. */
  async chmod(path: string, mode: number): Promise<void> {
    await this.#at("chmod", path, (at) => this.workspace.files.chmod(at, mode));
  }

  /** Creates a symbolic link. */
  async symlink(target: string, path: string): Promise<void> {
    await this.#at("symlink", path, (at) => this.workspace.files.symlink(target, at));
  }

  /** Where a symbolic link leads to. */
  async readlink(path: string): Promise<string> {
    return this.#at("readlink", path, (at) => this.workspace.files.readlink(at));
  }

  /** The path without symbolic links. */
  async realpath(path: string): Promise<string> {
    let left = normalPath(path).split("/").slice(1).filter(Boolean);
    let at = "";
    for (let links = 0; left.length > 0; ) {
      const next = `${at}/${left.shift()!}`;
      const { target } = await this.#at("realpath", next, (place) => this.workspace.files.lstat(place));
      if (target === null) {
        at = next;
        continue;
      }
      if (++links > LINKS_MAX) throw wrapped(new Error(), "ELOOP", "realpath", path);
      left = [...resolvedPath(at, target).split("/").slice(1).filter(Boolean), ...left];
      at = "";
    }
    return at === "" ? "/" : at;
  }

  /** Creates a hard link; this needs the mount. */
  async link(existing: string, path: string): Promise<void> {
    const [from, to] = [await this.#inMount("link", existing), await this.#inMount("link", path, true)];
    await link(from, to).catch((error: unknown) => Promise.reject(wrapped(error, codeOf(error), "link", path)));
  }

  /** Sets the times of a file; this needs the mount. */
  async utimes(path: string, atime: Date, mtime: Date): Promise<void> {
    const at = await this.#inMount("utimes", path);
    await utimes(at, atime, mtime).catch((error: unknown) => Promise.reject(wrapped(error, codeOf(error), "utimes", path)));
  }

  /** The place of a path in the mount, which is compared with what the daemon has there: it may be another mount. */
  async #inMount(call: string, path: string, parent = false): Promise<string> {
    const looked = parent ? join(normalPath(path), "..") : path;
    const info = await this.#at(call, looked, (at) => this.workspace.files.lstat(at));
    const { mount } = await this.workspace.info();
    const { branch } = this.workspace;
    const top = branch === "main" ? mount : join(mount, ".agentvfs/branches", branch);
    const seen = await lstat(join(top, this.#place(looked))).catch(() => null);
    const same = seen !== null && (seen.mode === info.mode) && seen.uid === info.uid;
    if (!same) throw wrapped(new Error(`the mount ${mount} cannot be reached`), "ENOSYS", call, path);
    return join(top, this.#place(path));
  }

  #place(path: string): string {
    return `${this.root}${normalPath(path)}`;
  }

  async #at<T>(call: string, path: string, ask: (at: string) => Promise<T>): Promise<T> {
    try {
      return await ask(this.#place(path)).catch(async (error: unknown) => {
        // An absolute link leads out of the workspace for the daemon; for just-bash the workspace is all there is.
        if (!(error instanceof FileError && error.code === "EXDEV")) throw error;
        return ask(this.#place(await this.realpath(path)));
      });
    } catch (error) {
      throw error instanceof FileError ? wrapped(error, error.code, call, path) : error;
    }
  }
}

/** Symbolic links that are followed in one path. */
const LINKS_MAX = 40;

/** The error as Node's own are: just-bash looks for the code at the beginning of the message. */
function wrapped(cause: unknown, code: string, call: string, path: string): NodeJS.ErrnoException {
  const text = TEXTS[code] ?? (cause instanceof Error && cause.message !== "" ? cause.message : code);
  return Object.assign(new Error(`${code}: ${text}, ${call} '${path}'`, { cause }), { code, syscall: call, path });
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? "EIO";
}

function statOf(info: FileInfo): BashStat {
  return {
    isFile: info.isFile(),
    isDirectory: info.isDirectory(),
    isSymbolicLink: info.isSymbolicLink(),
    mode: info.perm,
    size: info.size,
    mtime: info.mtime,
    ino: info.inode,
  };
}
