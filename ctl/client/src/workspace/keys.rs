//! Keys of a branch, with JSON values.

use super::{Error, Result, Workspace};
use crate::protocol::{
    Call, Json, KvDelete, KvDeleteAnswer, KvGet, KvList, KvListAnswer, KvRow, KvSet, Side,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Workspace {
    /// The value of a key; `None` where there is no such key.
    pub fn get<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>> {
        let ask = Call::KvGet(KvGet {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            state: Side::Live,
            key: key.to_owned(),
        });
        let row: KvRow = match self.ask(&ask) {
            Err(error) if error.kind() == "no-such-key" => return Ok(None),
            answer => answer?,
        };
        let value = serde_json::from_slice(&row.value.0);
        value.map(Some).map_err(|e| another_type(key, &e))
    }

    /// Sets a key. It is on stable storage afterwards; inside of [`Workspace::call`] at the end of that.
    pub fn set(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value).map_err(|e| another_type(key, &e))?;
        let ask = Call::KvSet(KvSet {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            key: key.to_owned(),
            value: Json::from(&*text),
            unsynced: self.unsynced,
        });
        let _: KvRow = self.ask(&ask)?;
        Ok(())
    }

    /// Removes a key; false where there was none.
    pub fn delete(&mut self, key: &str) -> Result<bool> {
        let ask = Call::KvDelete(KvDelete {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            key: key.to_owned(),
            unsynced: self.unsynced,
        });
        let answer: KvDeleteAnswer = self.ask(&ask)?;
        Ok(answer.deleted)
    }

    /// The keys that begin with `prefix`, sorted.
    pub fn keys(&mut self, prefix: &str) -> Result<Vec<String>> {
        let mut ask = KvList {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            state: Side::Live,
            prefix: prefix.to_owned(),
            after: None,
        };
        let mut keys = Vec::new();
        loop {
            let page: KvListAnswer = self.ask(&Call::KvList(ask.clone()))?;
            keys.extend(page.entries.into_iter().map(|row| row.key));
            if !page.more {
                return Ok(keys);
            }
            ask.after = keys.last().cloned();
        }
    }
}

fn another_type(key: &str, why: &serde_json::Error) -> Error {
    Error::Usage(format!("the value of {key:?} is of another type: {why}"))
}
