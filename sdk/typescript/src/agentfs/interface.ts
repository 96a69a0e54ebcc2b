/** The types of agentfs-sdk's file system. */

export const S_IFMT = 0o170000;
export const S_IFREG = 0o100000;
export const S_IFDIR = 0o040000;
export const S_IFLNK = 0o120000;
export const DEFAULT_FILE_MODE = S_IFREG | 0o644;
export const DEFAULT_DIR_MODE = S_IFDIR | 0o755;

/** What is known of a file, without methods. Times are seconds since 1970. */
export interface StatsData {
  ino: number;
  mode: number;
  nlink: number;
  uid: number;
  gid: number;
  size: number;
  atime: number;
  mtime: number;
  ctime: number;
}

/** What is known of a file. */
export interface Stats extends StatsData {
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/** Adds the methods. */
export function createStats(data: StatsData): Stats {
  const is = (type: number) => () => (data.mode & S_IFMT) === type;
  return { ...data, isFile: is(S_IFREG), isDirectory: is(S_IFDIR), isSymbolicLink: is(S_IFLNK) };
}

/** An entry of a directory. */
export interface DirEntry {
  name: string;
  stats: Stats;
}

/** What the file system has. */
export interface FilesystemStats {
  /** Files, directories and links, the root among them. */
  inodes: number;
  /** Bytes of all files. */
  bytesUsed: number;
}

/** An open file. */
export interface FileHandle {
  pread(offset: number, size: number): Promise<Buffer>;
  pwrite(offset: number, data: Buffer): Promise<void>;
  truncate(size: number): Promise<void>;
  fsync(): Promise<void>;
  fstat(): Promise<Stats>;
}

/** How text is encoded. */
export type Encoding = BufferEncoding | { encoding?: BufferEncoding };

/** A file system as agentfs-sdk has it. */
export interface FileSystem {
  stat(path: string): Promise<Stats>;
  lstat(path: string): Promise<Stats>;
  readFile(path: string): Promise<Buffer>;
  readFile(path: string, encoding: BufferEncoding): Promise<string>;
  readFile(path: string, options: { encoding: BufferEncoding }): Promise<string>;
  readFile(path: string, options?: Encoding): Promise<Buffer | string>;
  writeFile(path: string, data: string | Buffer, options?: Encoding): Promise<void>;
  readdir(path: string): Promise<string[]>;
  readdirPlus(path: string): Promise<DirEntry[]>;
  mkdir(path: string): Promise<void>;
  rmdir(path: string): Promise<void>;
  unlink(path: string): Promise<void>;
  rm(path: string, options?: { force?: boolean; recursive?: boolean }): Promise<void>;
  rename(oldPath: string, newPath: string): Promise<void>;
  copyFile(src: string, dest: string): Promise<void>;
  symlink(target: string, linkpath: string): Promise<void>;
  readlink(path: string): Promise<string>;
  access(path: string): Promise<void>;
  statfs(): Promise<FilesystemStats>;
  open(path: string): Promise<FileHandle>;
}
