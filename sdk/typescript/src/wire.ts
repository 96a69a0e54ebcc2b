/** How values stand in the protocol, and how this package shows them. */

import { isUtf8 } from "node:buffer";

/**
 * A path in a workspace: text, or bytes where it is not UTF-8. It counts from the workspace's root, with or without a
 * slash in front.
 */
export type Path = string | Uint8Array;

/** Bytes as the protocol has them. */
export type WireBytes = string | { b64: string };

/** A moment as the protocol has it. */
export interface WireMoment {
  sec: number;
  nsec: number;
}

/** Which state of a branch: its live tree, the base, or that of a commit, label or other ref. */
export type State = "live" | "base" | { ref: string };

/** @internal */
export type WireState = "live" | "base" | { ref: string };

/** Bytes as the protocol wants them. */
export function wireBytes(bytes: Uint8Array): WireBytes {
  const buffer = asBuffer(bytes);
  return isUtf8(buffer) ? buffer.toString() : { b64: buffer.toString("base64") };
}

/** A path as the protocol wants it. */
export function wirePath(path: Path): WireBytes {
  if (typeof path === "string") return parts(path.split("/")).join("/");
  const latin1 = asBuffer(path).toString("latin1");
  return wireBytes(Buffer.from(parts(latin1.split("/")).join("/"), "latin1"));
}

function parts(names: string[]): string[] {
  return names.filter((name) => name !== "" && name !== ".");
}

/** A path for a message. */
export function shownPath(path: Path): string {
  return typeof path === "string" ? path : asBuffer(path).toString();
}

/** Bytes out of the protocol. */
export function ofBytes(bytes: WireBytes): Buffer {
  return typeof bytes === "string" ? Buffer.from(bytes) : Buffer.from(bytes.b64, "base64");
}

/** The text of bytes out of the protocol; what is not UTF-8 in it is U+FFFD. */
export function ofText(bytes: WireBytes): string {
  return typeof bytes === "string" ? bytes : ofBytes(bytes).toString();
}

/** A buffer of the same memory. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A moment out of the protocol, to the millisecond. */
export function ofMoment(moment: WireMoment): Date {
  return new Date(moment.sec * 1000 + Math.floor(moment.nsec / 1e6));
}

/** A moment as the protocol wants it. */
export function wireMoment(date: Date): WireMoment {
  const ms = date.getTime();
  const sec = Math.floor(ms / 1000);
  return { sec, nsec: (ms - sec * 1000) * 1_000_000 };
}

/** A value as JSON text; `undefined` is `null`. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}
