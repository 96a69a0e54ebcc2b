/** agentfs-sdk's key-value store on a workspace. */

import type { Database } from "./database.js";

/** agentfs-sdk's `KvStore`. */
export class KvStore {
  private constructor(private readonly db: Database) {}

  /** Opens the store of a database. */
  static async fromDatabase(db: Database): Promise<KvStore> {
    await db.connect();
    return new KvStore(db);
  }

  async set(key: string, value: any): Promise<void> {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined) throw new TypeError(`the value of ${key} cannot be expressed in JSON`);
    await this.db.use(async (workspace) => workspace.kv.setText(key, text, { unsynced: this.db.memory }));
  }

  async get<T = any>(key: string): Promise<T | undefined> {
    return this.db.use((workspace) => workspace.kv.get<T>(key));
  }

  async list(prefix: string): Promise<{ key: string; value: any }[]> {
    const entries = await this.db.use((workspace) => workspace.kv.list(prefix));
    return entries.map(({ key, value }) => ({ key, value }));
  }

  async delete(key: string): Promise<void> {
    await this.db.use((workspace) => workspace.kv.delete(key, { unsynced: this.db.memory }));
  }
}
