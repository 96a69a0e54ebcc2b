//! Requests about key-value state.

use super::moments::moment;
use super::mounts::Mounts;
use super::request::{looking_into, on, side};
use agentvfs_client::protocol::{
    Fault, Json, KvDelete, KvDeleteAnswer, KvGet, KvList, KvListAnswer, KvRow, KvSet, PIECE_BYTES,
    code,
};
use engine::KvEntry;
use engine::verbs;

/// Sets a key, durably.
pub fn set(mounts: &Mounts, ask: &KvSet) -> Result<KvRow, Fault> {
    let no_text = || Fault::protocol(code::INVALID_PARAMS, "value is not UTF-8");
    let value = ask.value.text().ok_or_else(no_text)?;
    let entry = on(mounts, &ask.workspace, |w| match ask.unsynced {
        true => verbs::kv_set_unsynced(w, &ask.branch, &ask.key, value),
        false => verbs::kv_set(w, &ask.branch, &ask.key, value),
    })?;
    Ok(row(&ask.key, &entry))
}

/// What a key has.
pub fn get(mounts: &Mounts, ask: &KvGet) -> Result<KvRow, Fault> {
    let found = looking_into(mounts, &ask.workspace, |w| {
        let map = verbs::kv_of(w, &ask.branch, &side(&ask.state))?;
        Ok(map.get(&ask.key).cloned())
    })?;
    let entry = found.ok_or_else(|| no_key(&ask.key, &ask.workspace))?;
    Ok(row(&ask.key, &entry))
}

/// Keys with a prefix, as many at a time as one answer takes.
pub fn list(mounts: &Mounts, ask: &KvList) -> Result<KvListAnswer, Fault> {
    let map = looking_into(mounts, &ask.workspace, |w| {
        verbs::kv_of(w, &ask.branch, &side(&ask.state))
    })?;
    let after = ask
        .after
        .as_deref()
        .filter(|after| *after >= ask.prefix.as_str());
    let (mut entries, mut bytes, mut more) = (Vec::new(), 0, false);
    map.scan(after.unwrap_or(&ask.prefix), &mut |key, entry| {
        if Some(key) == after {
            return true;
        }
        if !key.starts_with(&ask.prefix) {
            return false;
        }
        more = bytes >= PIECE_BYTES;
        if !more {
            bytes += 100 + key.len() + entry.value.len();
            entries.push(row(key, entry));
        }
        !more
    });
    Ok(KvListAnswer { entries, more })
}

/// Removes a key, durably.
pub fn delete(mounts: &Mounts, ask: &KvDelete) -> Result<KvDeleteAnswer, Fault> {
    let deleted = on(mounts, &ask.workspace, |w| match ask.unsynced {
        true => verbs::kv_delete_unsynced(w, &ask.branch, &ask.key),
        false => verbs::kv_delete(w, &ask.branch, &ask.key),
    })?;
    Ok(KvDeleteAnswer { deleted })
}

fn row(key: &str, entry: &KvEntry) -> KvRow {
    KvRow {
        key: key.to_owned(),
        value: Json::from(entry.value.as_str()),
        created: moment(entry.created),
        updated: moment(entry.updated),
    }
}

fn no_key(key: &str, workspace: &str) -> Fault {
    Fault::failed("no-such-key", format!("there is no key {key:?}"))
        .hint(format!("agentvfs kv list -w {workspace} lists all keys"))
}

#[cfg(test)]
mod tests {
    use agentvfs_client::protocol::{
        Call, KV_CONFLICTS, KvSet, REQUEST_BYTES_MAX, encode_request, parse_request,
    };

    #[test]
    fn the_longest_value_fits_a_request_whatever_is_in_it() {
        let quotes = "\"".repeat(engine::kv::VALUE_BYTES_MAX);
        for value in [
            quotes.as_str(),
            "1",
            "{\"a\":\"b\"}",
            &"x".repeat(quotes.len()),
        ] {
            let call = Call::KvSet(KvSet {
                workspace: "w".repeat(64),
                branch: "b".repeat(64),
                key: "\"".repeat(engine::kv::KEY_BYTES_MAX),
                value: value.into(),
                unsynced: true,
            });
            let line = encode_request(i64::MAX, &call);
            assert!(line.len() <= REQUEST_BYTES_MAX, "{}", line.len());
            assert_eq!(parse_request(&line).unwrap().call, call);
        }
    }

    #[test]
    fn keys_in_conflict_stand_where_the_engine_puts_them() {
        assert_eq!(KV_CONFLICTS, engine::kv::KV_CONFLICTS);
    }
}
