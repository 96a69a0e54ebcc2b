//! The policy of a workspace as a text, kept as the ref `policy/WORKSPACE`: replaced atomically and checksummed.
//!
//! What it means is for others to know ([`crate::judge`]). Invariant: each text that is set gets a higher number than all
//! before it, also where the text before cannot be read.

use super::Engine;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{decode, encode};

/// Below it are the refs of all workspaces.
pub(crate) const POLICY_DIR: &str = "policy/";
const VERSION: u16 = 1;

/// The policy of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Its number, from 1.
    pub version: u64,
    /// Its text.
    pub text: String,
}

#[derive(bincode::Encode, bincode::Decode)]
struct PolicyRecord {
    version: u16,
    number: u64,
    text: String,
}

/// The ref of a workspace.
pub(crate) fn ref_name(workspace: &str) -> String {
    format!("{POLICY_DIR}{workspace}")
}

/// The value of the ref.
pub fn encode_policy(policy: &StoredPolicy) -> Vec<u8> {
    encode(&PolicyRecord {
        version: VERSION,
        number: policy.version,
        text: policy.text.clone(),
    })
}

/// Decodes the value of the ref; says why where it is none.
pub fn decode_policy(bytes: &[u8]) -> Result<StoredPolicy, String> {
    let record: PolicyRecord = decode(bytes)?;
    match record.version {
        VERSION if record.number > 0 => Ok(StoredPolicy {
            version: record.number,
            text: record.text,
        }),
        VERSION => Err("its number is 0".into()),
        found => Err(format!("its version is {found}")),
    }
}

impl Engine {
    /// The policy of a workspace, if one was ever set.
    pub fn policy(&self, workspace: &str) -> Result<Option<StoredPolicy>> {
        self.get(workspace)?;
        let damaged = |why| Error::Damaged {
            what: format!("the policy of workspace {workspace}"),
            why,
        };
        let bytes = match self.refs.get(&ref_name(workspace)) {
            Ok(bytes) => bytes,
            Err(error @ objstore::Error::Corrupt { .. }) => return Err(damaged(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        bytes
            .map(|bytes| decode_policy(&bytes).map_err(damaged))
            .transpose()
    }

    /// Keeps another text; durable after `Ok`. Changes of an open workspace are judged by it once its
    /// [`Judges`](crate::judge::Judges) know it.
    pub fn set_policy(&self, workspace: &str, text: &str) -> Result<StoredPolicy> {
        let before = match self.policy(workspace) {
            Ok(before) => before.map_or(0, |before| before.version),
            // Higher than any number that was counted up to.
            Err(Error::Damaged { .. }) => u64::try_from(clock::now().sec).unwrap_or_default(),
            Err(error) => return Err(error),
        };
        let policy = StoredPolicy {
            version: before.saturating_add(1),
            text: text.to_owned(),
        };
        self.refs
            .set(&ref_name(workspace), &encode_policy(&policy))?;
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_values_neither_panic_nor_pass() {
        let good = StoredPolicy {
            version: 7,
            text: "rules".into(),
        };
        let bytes = encode_policy(&good);
        assert_eq!(decode_policy(&bytes), Ok(good));
        for end in 0..bytes.len() {
            assert!(decode_policy(&bytes[..end]).is_err());
        }
        let mut newer = bytes.clone();
        newer[0] = 9;
        assert!(decode_policy(&newer).is_err());
        assert!(decode_policy(&[bytes, vec![0]].concat()).is_err());
    }
}
