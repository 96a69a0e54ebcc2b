/** Errors of agentfs-sdk: an errno, a call and a path, in its words. */

import { FileError } from "../errors.js";

/** Codes of errors of the file system. */
export type FsErrorCode = "ENOENT" | "EEXIST" | "EISDIR" | "ENOTDIR" | "ENOTEMPTY" | "EPERM" | "EINVAL" | "ENOSYS" | (string & {});

/** The call that failed. */
export type FsSyscall = "open" | "stat" | "mkdir" | "rmdir" | "rm" | "unlink" | "rename" | "scandir" | "copyfile" | "access";

/** An error of the file system. */
export interface ErrnoException extends Error {
  code?: FsErrorCode;
  syscall?: FsSyscall;
  path?: string;
}

const TEXTS: Record<string, string | undefined> = {
  ENOENT: "no such file or directory",
  EEXIST: "file already exists",
  EISDIR: "illegal operation on a directory",
  ENOTDIR: "not a directory",
  ENOTEMPTY: "directory not empty",
  EPERM: "operation not permitted",
  EINVAL: "invalid argument",
};

/** An error as agentfs-sdk has it. */
export function createFsError(facts: { code: FsErrorCode; syscall: FsSyscall; path?: string; message?: string; cause?: unknown }): ErrnoException {
  const { code, syscall, path } = facts;
  const message = facts.message ?? TEXTS[code] ?? code;
  const error: ErrnoException = new Error(`${code}: ${message}, ${syscall}${path === undefined ? "" : ` '${path}'`}`, { cause: facts.cause });
  error.code = code;
  error.syscall = syscall;
  if (path !== undefined) error.path = path;
  return error;
}

/** The code of an error about a file; null for any other error. */
export function codeOf(error: unknown): string | null {
  return error instanceof FileError ? error.code : null;
}
