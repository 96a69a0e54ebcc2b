/** Branches of a workspace: creating, merging, resolving conflicts. */

import { ofChange, ofConflict, type Change, type Conflict, type WireChange, type WireConflict } from "./changes.js";
import type { Client } from "./client.js";
import type { Progress } from "./connection.js";
import type { Abortable } from "./files.js";
import { ofMoment, ofText, wirePath, type Path, type WireBytes, type WireMoment } from "./wire.js";

/** A branch. */
export interface BranchInfo {
  /** Its name. */
  name: string;
  /** Its head; null while the project is being imported. */
  commit: string | null;
  /** Its directory in the mount. */
  path: string;
  /** When it was created. */
  created: Date;
  /** With `standing`: how it stands to the branch that it was created from. */
  standing?: {
    /** That branch, or null. */
    madeOf: string | null;
    /** Commits that only this branch has. */
    ahead: number;
    /** Commits that only that one has. */
    behind: number;
    /** Time of its newest state. */
    changed: Date;
    /** How many conflicts are not resolved. */
    conflicts: number;
  };
}

/** What a merge or update did. With `conflicts`, and without `keepConflicts`, nothing was changed. */
export interface MergeResult {
  /** What was done. */
  status: "merged" | "fast-forward" | "up-to-date" | "conflicts";
  /** The commit; null if nothing was changed. */
  commit: string | null;
  /** What both changed differently. */
  conflicts: Conflict[];
  /** How many files changed. */
  filesChanged: number;
  /** Of a dry run: what would change. */
  changes: Change[];
}

/** How a branch is merged. */
export interface MergeOptions extends Abortable {
  /** Merge what can be merged, and leave conflicts to be resolved. */
  keepConflicts?: boolean;
  /** Change nothing. */
  dryRun?: boolean;
  /** Label of the commit. */
  label?: string;
  /** Message of the commit. */
  message?: string;
  /** Hears how far it is. */
  onProgress?: (progress: Progress) => void;
}

interface WireBranch {
  name: string;
  commit: string | null;
  path: WireBytes;
  created: WireMoment;
  standing?: { made_of: string | null; ahead: number; behind: number; changed: WireMoment; conflicts: number } | null;
}

/** @internal */
export interface WireMerge {
  status: MergeResult["status"];
  commit: string | null;
  conflicts: WireConflict[];
  files_changed: number;
  changes?: WireChange[];
}

/** Branches of a workspace. */
export class Branches {
  /** @internal */
  constructor(
    private readonly client: Client,
    private readonly workspace: string,
    private readonly current: string,
  ) {}

  /** All branches, `main` first. */
  async list(options: Abortable & { standing?: boolean } = {}): Promise<BranchInfo[]> {
    const params = { workspace: this.workspace, standing: options.standing };
    const { branches } = await this.client.call<{ branches: WireBranch[] }>("branch.list", params, { signal: options.signal });
    return branches.map(ofBranch);
  }

  /** Creates a branch from this one as it is now, or from a commit or label of it. */
  async create(name: string, options: Abortable & { from?: string; origin?: string } = {}): Promise<BranchInfo> {
    const params = { workspace: this.workspace, branch: options.origin ?? this.current, name, from: options.from };
    return ofBranch(await this.client.call<WireBranch>("branch.create", params, { signal: options.signal }));
  }

  /** Deletes a branch; gives its last commit, and whether no other branch has that. */
  async delete(name: string): Promise<{ commit: string; onlyHere: boolean }> {
    const params = { workspace: this.workspace, branch: name };
    const answer = await this.client.call<{ commit: string; only_here: boolean }>("branch.delete", params);
    return { commit: answer.commit, onlyHere: answer.only_here };
  }

  /** Renames a branch. */
  async rename(from: string, to: string): Promise<BranchInfo> {
    const params = { workspace: this.workspace, branch: from, name: to };
    return ofBranch(await this.client.call<WireBranch>("branch.rename", params));
  }

  /** Merges a branch into another one, or into this one. */
  async merge(from: string, options: MergeOptions & { into?: string } = {}): Promise<MergeResult> {
    const { keepConflicts, dryRun, label, message, signal, onProgress } = options;
    const params = {
      workspace: this.workspace,
      from,
      into: options.into ?? this.current,
      keep_conflicts: keepConflicts,
      dry_run: dryRun,
      label,
      message,
    };
    return ofMerge(await this.client.call<WireMerge>("branch.merge", params, { signal, onProgress }));
  }

  /** Conflicts of this branch that are not resolved. */
  async conflicts(options: Abortable = {}): Promise<Conflict[]> {
    const params = { workspace: this.workspace, branch: this.current };
    const answer = await this.client.call<{ conflicts: WireConflict[] }>("branch.conflicts", params, { signal: options.signal });
    return answer.conflicts.map(ofConflict);
  }

  /** Resolves a conflict by one side, or by the file as it is now (`working`); says how many are left. */
  async resolve(path: Path, by: "ours" | "theirs" | "base" | "working"): Promise<number> {
    const params = { workspace: this.workspace, branch: this.current, path: wirePath(path), by };
    return (await this.client.call<{ left: number }>("branch.resolve", params)).left;
  }

  /** What differs between two branches. */
  async diff(from: string, to: string = this.current, options: Abortable & { paths?: Path[] } = {}): Promise<Change[]> {
    const params = { workspace: this.workspace, from, to, paths: options.paths?.map(wirePath) };
    const answer = await this.client.call<{ changes: WireChange[] }>("branch.diff", params, { signal: options.signal });
    return answer.changes.map(ofChange);
  }
}

function ofBranch(branch: WireBranch): BranchInfo {
  const s = branch.standing;
  const standing = s && { madeOf: s.made_of, ahead: s.ahead, behind: s.behind, changed: ofMoment(s.changed), conflicts: s.conflicts };
  return {
    name: branch.name,
    commit: branch.commit,
    path: ofText(branch.path),
    created: ofMoment(branch.created),
    ...(standing ? { standing } : {}),
  };
}

/** @internal */
export function ofMerge(answer: WireMerge): MergeResult {
  return {
    status: answer.status,
    commit: answer.commit,
    conflicts: answer.conflicts.map(ofConflict),
    filesChanged: answer.files_changed,
    changes: (answer.changes ?? []).map(ofChange),
  };
}
