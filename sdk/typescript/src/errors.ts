/**
 * What can go wrong. Every error that this package throws itself is an {@link AgentVfsError}; wrong arguments of the
 * caller's own are `TypeError`s.
 *
 * - {@link AgentVfsError}: the daemon refused a request; `kind` says why
 *   - {@link FileError}: about a file; has `errno` and `code`, as Node's errors do
 *   - {@link NoDaemonError}: no daemon can be reached or started
 *   - {@link VersionError}: the daemon speaks another version of the protocol
 *   - {@link BrokenError}: the daemon ended during a request that changes something; the next call works
 *   - {@link AbortedError}: an `AbortSignal` ended the call
 */

/** What is known of an error besides its message. */
export interface ErrorFacts {
  /** A word for programs, such as `no-such-ref`; docs/protocol.md lists them. */
  kind: string;
  /** Name of the errno of an error about a file, such as `ENOENT`. */
  errno?: string | null;
  /** What to do about it; in most cases a command that can be typed. */
  hint?: string | null;
  /** The protocol's method that failed. */
  method?: string | null;
  /** The path that the request was about. */
  path?: string | null;
  /** What it comes from. */
  cause?: unknown;
}

/** An error of agentvfs. */
export class AgentVfsError extends Error {
  /** A word for programs, such as `no-such-ref`. */
  readonly kind: string;
  /** Name of the errno of an error about a file, such as `ENOENT`; otherwise null. */
  readonly errno: string | null;
  /** What to do about it, or null. */
  readonly hint: string | null;
  /** The protocol's method that failed, or null. */
  readonly method: string | null;
  /** The path that the request was about, or null. */
  readonly path: string | null;

  constructor(message: string, facts: ErrorFacts) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.kind = facts.kind;
    this.errno = facts.errno ?? null;
    this.hint = facts.hint ?? null;
    this.method = facts.method ?? null;
    this.path = facts.path ?? null;
  }
}

/** An error about a file; `code` is the name of its errno, as in errors of `node:fs`. */
export class FileError extends AgentVfsError {
  /** The same as `errno`. */
  readonly code: string;

  constructor(message: string, facts: ErrorFacts & { errno: string }) {
    super(message, facts);
    this.code = facts.errno;
  }
}

/** No daemon can be reached or started. Nothing was done. */
export class NoDaemonError extends AgentVfsError {}

/** The daemon speaks another version of the protocol. Nothing was done. */
export class VersionError extends AgentVfsError {}

/**
 * The connection ended before the response to a request that changes something: whether it was carried out is not
 * known. The next call connects again, and starts a daemon if none runs.
 */
export class BrokenError extends AgentVfsError {}

/** An `AbortSignal` ended the call; `cause` is the signal's reason. */
export class AbortedError extends AgentVfsError {
  /** As in Node's own errors. */
  readonly code = "ABORT_ERR";

  constructor(reason: unknown, method: string | null = null) {
    super("the call was aborted", { kind: "aborted", method, cause: reason });
    this.name = "AbortError";
  }
}

/** @internal The daemon ended before it did anything: the request may be repeated. */
export class EndingError extends AgentVfsError {}

/** @internal The error of an `error` object of the protocol. */
export function ofFault(fault: unknown, method: string, path: string | null): AgentVfsError {
  const { code, message, data } = fault as { code?: number; message?: string; data?: Record<string, unknown> };
  const text = typeof message === "string" ? message : "the daemon returned an invalid error";
  const facts = {
    kind: typeof data?.kind === "string" && data.kind !== "" ? data.kind : "failed",
    errno: typeof data?.errno === "string" ? data.errno : null,
    hint: typeof data?.hint === "string" ? data.hint : null,
    method,
    path,
  };
  if (code === -32001) return new EndingError(text, { ...facts, kind: "stopping" });
  if (code === -32002) return new VersionError(text, { ...facts, kind: "version", hint: VERSION_HINT });
  if (code === -32602 || code === -32600) return new AgentVfsError(text, { ...facts, kind: "invalid-request" });
  if (code === -32601) return new AgentVfsError(text, { ...facts, kind: "no-such-method", hint: VERSION_HINT });
  const errno = facts.errno ?? ERRNO_OF_KIND[facts.kind] ?? null;
  return errno === null ? new AgentVfsError(text, facts) : new FileError(text, { ...facts, errno });
}

/** @internal */
export const VERSION_HINT = "use the agentvfs program and the package of one version; agentvfs doctor shows the daemon";

/** Errnos of the kinds that always have the same, for a daemon that does not send them. */
const ERRNO_OF_KIND: Record<string, string | undefined> = {
  "no-such-path": "ENOENT",
  exists: "EEXIST",
  "not-empty": "ENOTEMPTY",
  "link-loop": "ELOOP",
  "leads-out": "EXDEV",
  "no-space": "ENOSPC",
};
