/** What differs between two states, and conflicts. */

import { ofBytes, ofText, type WireBytes } from "./wire.js";

/** A line count of what changed in a file. */
export interface Lines {
  /** Lines that only the new file has. */
  added: number;
  /** Lines that only the old file has. */
  removed: number;
  /** It is no text; then both are 0. */
  binary: boolean;
  /** Length of the old file. */
  oldSize: number;
  /** Length of the new file. */
  newSize: number;
}

/** Something that differs between two states. */
export interface Change {
  /** Added, modified, deleted, renamed, or of another type. */
  status: "A" | "M" | "D" | "R" | "T";
  /** Its path; what is not UTF-8 in it is U+FFFD. */
  path: string;
  /** Its path. */
  pathBytes: Buffer;
  /** Its path before it was renamed, or null. */
  oldPath: string | null;
  /** With `stat`: its lines. */
  lines?: Lines;
}

/** A path that two branches changed differently. */
export interface Conflict {
  /** The path; what is not UTF-8 in it is U+FFFD. */
  path: string;
  /** The path. */
  pathBytes: Buffer;
  /** How they differ, such as `content`. */
  kind: string;
}

/** @internal */
export interface WireChange {
  status: Change["status"];
  path: WireBytes;
  old_path?: WireBytes | null;
  lines?: { added: number; removed: number; binary: boolean; old_size: number; new_size: number } | null;
}

/** @internal */
export interface WireConflict {
  path: WireBytes;
  kind: string;
}

/** @internal */
export function ofChange(change: WireChange): Change {
  const lines = change.lines;
  return {
    status: change.status,
    path: ofText(change.path),
    pathBytes: ofBytes(change.path),
    oldPath: change.old_path == null ? null : ofText(change.old_path),
    ...(lines == null
      ? {}
      : { lines: { added: lines.added, removed: lines.removed, binary: lines.binary, oldSize: lines.old_size, newSize: lines.new_size } }),
  };
}

/** @internal */
export function ofConflict(conflict: WireConflict): Conflict {
  return { path: ofText(conflict.path), pathBytes: ofBytes(conflict.path), kind: conflict.kind };
}
