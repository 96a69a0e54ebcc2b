/**
 * agentfs-sdk's file system on a workspace: its calls, its errors.
 *
 * As there, `stat` is `lstat`, and writing a file creates missing directories. What it refuses with ENOSYS, removing,
 * renaming and reading symbolic links, works here.
 */

import { Buffer } from "node:buffer";
import type { FileHandle as Handle, FileInfo, Files } from "../files.js";
import type { Database } from "./database.js";
import { codeOf, createFsError, type FsSyscall } from "./errors.js";
import { createStats, type DirEntry, type Encoding, type FileHandle, type FileSystem, type FilesystemStats, type Stats } from "./interface.js";

/** Bytes of a row of `fs_data` in an export. */
const CHUNK_SIZE = 65536;

/** agentfs-sdk's `Filesystem`. */
export class Filesystem implements FileSystem {
  private constructor(private readonly db: Database) {}

  /** Opens the file system of a database. */
  static async fromDatabase(db: Database): Promise<Filesystem> {
    await db.connect();
    return new Filesystem(db);
  }

  /** Size of a chunk in an export. */
  getChunkSize(): number {
    return CHUNK_SIZE;
  }

  async stat(path: string): Promise<Stats> {
    return statsOf(await this.#info("stat", normalized(path)));
  }

  async lstat(path: string): Promise<Stats> {
    return this.stat(path);
  }

  async readFile(path: string): Promise<Buffer>;
  async readFile(path: string, encoding: BufferEncoding): Promise<string>;
  async readFile(path: string, options: { encoding: BufferEncoding }): Promise<string>;
  async readFile(path: string, options?: Encoding): Promise<Buffer | string>;
  async readFile(path: string, options?: Encoding): Promise<Buffer | string> {
    const at = normalized(path);
    const content = await this.#do("open", at, (files) => files.read(at), asMissing);
    const encoding = typeof options === "string" ? options : options?.encoding;
    return encoding ? content.toString(encoding) : content;
  }

  async writeFile(path: string, data: string | Buffer, options?: Encoding): Promise<void> {
    const at = normalized(path);
    const encoding = typeof options === "string" ? options : options?.encoding;
    const content = typeof data === "string" ? Buffer.from(data, encoding ?? "utf8") : data;
    const how = { parents: true, unsynced: this.db.memory };
    await this.#do("open", at, (files) => files.write(at, content, how));
  }

  async readdir(path: string): Promise<string[]> {
    return (await this.#entries(path)).map((entry) => entry.name);
  }

  async readdirPlus(path: string): Promise<DirEntry[]> {
    return (await this.#entries(path)).map((entry) => ({ name: entry.name, stats: statsOf(entry) }));
  }

  async #entries(path: string): Promise<FileInfo[]> {
    const at = normalized(path);
    return this.#do("scandir", at, (files) => files.list(at), async (code, files) => {
      // A file is no directory; nothing is below a file.
      return code === "ENOTDIR" && !(await files.exists(at)) ? "ENOENT" : code;
    });
  }

  async mkdir(path: string): Promise<void> {
    const at = normalized(path);
    if (at === "/") throw createFsError({ code: "EEXIST", syscall: "mkdir", path: at });
    await this.#do("mkdir", at, (files) => files.mkdir(at));
  }

  async rmdir(path: string): Promise<void> {
    const at = this.#notRoot(path, "rmdir");
    await this.#do("rmdir", at, (files) => files.remove(at, { expect: "directory" }), async (code, files) => {
      return code === "ENOTDIR" && !(await files.exists(at)) ? "ENOENT" : code;
    });
  }

  async unlink(path: string): Promise<void> {
    const at = this.#notRoot(path, "unlink");
    await this.#do("unlink", at, (files) => files.remove(at, { expect: "file" }), asMissing);
  }

  /** The same as `unlink`. */
  async deleteFile(path: string): Promise<void> {
    await this.unlink(path);
  }

  async rm(path: string, options: { force?: boolean; recursive?: boolean } = {}): Promise<void> {
    const at = this.#notRoot(path, "rm");
    const how = options.recursive ? { recursive: true } : { expect: "file" as const };
    await this.#do("rm", at, (files) => files.remove(at, how), asMissing).catch((error: unknown) => {
      if (!options.force || (error as { code?: string }).code !== "ENOENT") throw error;
    });
  }

  async rename(oldPath: string, newPath: string): Promise<void> {
    const [from, to] = [normalized(oldPath), normalized(newPath)];
    if (from === to) return;
    this.#notRoot(from, "rename");
    this.#notRoot(to, "rename");
    await this.#pair("rename", from, to, (files) => files.rename(from, to));
  }

  async copyFile(src: string, dest: string): Promise<void> {
    const [from, to] = [normalized(src), normalized(dest)];
    if (from === to) throw createFsError({ code: "EINVAL", syscall: "copyfile", path: to });
    await this.#pair("copyfile", from, to, (files) => files.copy(from, to));
  }

  /** The error of a call with two paths is about the first one if that is missing or is a directory to be copied. */
  async #pair(syscall: FsSyscall, from: string, to: string, act: (files: Files) => Promise<void>): Promise<void> {
    const files = await this.#files();
    try {
      await this.db.use(() => act(files));
    } catch (error) {
      const code = codeOf(error);
      if (code === null) throw error;
      const source = await files.lstat(from).catch(() => null);
      if (source === null) throw createFsError({ code: "ENOENT", syscall, path: from, cause: error });
      const copied = syscall === "copyfile" && source.isDirectory();
      throw createFsError({ code, syscall, path: copied ? from : to, cause: error });
    }
  }

  async symlink(target: string, linkpath: string): Promise<void> {
    const at = normalized(linkpath);
    if (at === "/") throw createFsError({ code: "EEXIST", syscall: "open", path: at });
    await this.#do("open", at, (files) => files.symlink(target, at));
  }

  async readlink(path: string): Promise<string> {
    const at = normalized(path);
    return this.#do("open", at, (files) => files.readlink(at), asMissing);
  }

  async access(path: string): Promise<void> {
    await this.#info("access", normalized(path));
  }

  async statfs(): Promise<FilesystemStats> {
    const { inodes, bytesUsed } = await this.db.use(async () => (await this.#files()).statfs());
    return { inodes, bytesUsed };
  }

  /** Opens a file. agentfs-sdk's handles cannot be closed; these can. */
  async open(path: string): Promise<FileHandle & { close(): Promise<void> }> {
    const at = normalized(path);
    const open = () => this.#do("open", at, (files) => files.open(at), asMissing);
    return new OpenFile(await open(), open);
  }

  #info(syscall: FsSyscall, at: string): Promise<FileInfo> {
    return this.#do(syscall, at, (files) => files.lstat(at), asMissing);
  }

  #notRoot(path: string, syscall: FsSyscall): string {
    const at = normalized(path);
    if (at !== "/") return at;
    throw createFsError({ code: "EPERM", syscall, path: at, message: "operation not permitted on root directory" });
  }

  async #files(): Promise<Files> {
    return (await this.db.workspace()).files;
  }

  /** Does something with files; `meant` is the code that agentfs-sdk has for an error. */
  async #do<T>(
    syscall: FsSyscall,
    path: string,
    act: (files: Files) => Promise<T>,
    meant: (code: string, files: Files) => string | Promise<string> = (code) => code,
  ): Promise<T> {
    const files = await this.#files();
    try {
      return await this.db.use(() => act(files));
    } catch (error) {
      const code = codeOf(error);
      if (code === null) throw error;
      throw createFsError({ code: await meant(code, files), syscall, path, cause: error });
    }
  }
}

/** Below a file there is nothing: agentfs-sdk looks names up one by one, and finds none. */
function asMissing(code: string): string {
  return code === "ENOTDIR" ? "ENOENT" : code;
}

function normalized(path: string): string {
  const without = path.replace(/\/+$/, "") || "/";
  return without.startsWith("/") ? without : `/${without}`;
}

function statsOf(info: FileInfo): Stats {
  const time = Math.floor(info.mtime.getTime() / 1000);
  const { inode, mode, nlink, uid, gid, size } = info;
  return createStats({ ino: inode, mode, nlink, uid, gid, size, atime: time, mtime: time, ctime: time });
}

/** agentfs-sdk's handles have no `close`: those that are not closed are, once they are not used any more. */
const unclosed = new FinalizationRegistry<Handle>((handle) => void handle.close().catch(() => {}));

class OpenFile implements FileHandle {
  #handle: Handle;

  constructor(
    handle: Handle,
    private readonly open: () => Promise<Handle>,
  ) {
    this.#handle = handle;
    unclosed.register(this, handle, this);
  }

  async pread(offset: number, size: number): Promise<Buffer> {
    return this.#use((handle) => handle.read(offset, size));
  }

  async pwrite(offset: number, data: Buffer): Promise<void> {
    if (data.length > 0) await this.#use((handle) => handle.write(offset, data));
  }

  async truncate(size: number): Promise<void> {
    await this.#use((handle) => handle.truncate(size));
  }

  async fsync(): Promise<void> {
    await this.#use((handle) => handle.sync());
  }

  async fstat(): Promise<Stats> {
    return statsOf(await this.#use((handle) => handle.stat()));
  }

  async close(): Promise<void> {
    unclosed.unregister(this);
    await this.#handle.close();
  }

  /** A daemon that ended took its handles along: the file of that name is opened once more. */
  async #use<T>(act: (handle: Handle) => Promise<T>): Promise<T> {
    try {
      return await act(this.#handle);
    } catch (error) {
      const kind = (error as { kind?: string }).kind;
      if (!this.#handle.isOpen || (kind !== "no-such-handle" && kind !== "stale-handle")) throw error;
      unclosed.unregister(this);
      this.#handle = await this.open();
      unclosed.register(this, this.#handle, this);
      return act(this.#handle);
    }
  }
}
