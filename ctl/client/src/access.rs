//! Credentials and settings for a service that speaks S3, from where other programs have them: the environment, the files
//! `~/.aws/credentials` and `~/.aws/config`, the program that a profile names (`credential_process`), a token of a web
//! identity, a container's. Where there are none, the machine's own service is asked, by the process that has the network.
//!
//! The order is that of AWS's own programs (AWS SDKs and Tools Reference Guide, "Credential provider chain"). What is found is
//! named as crate `object_store` names its settings. Nothing of it is written anywhere.

use crate::failure::Failure;
use crate::protocol::Access;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Longest file and longest answer of a program that are read.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Variables that are settings as they are, and the settings.
const VARIABLES: [(&str, &str); 8] = [
    ("AWS_ROLE_ARN", "role_arn"),
    ("AWS_ROLE_SESSION_NAME", "role_session_name"),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file"),
    ("AWS_ENDPOINT_URL_STS", "endpoint_url_sts"),
    (
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "container_credentials_relative_uri",
    ),
    (
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "container_credentials_full_uri",
    ),
    (
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "container_authorization_token_file",
    ),
    ("AWS_METADATA_ENDPOINT", "metadata_endpoint"),
];

/// The keys of a profile that are used.
const KEYS: [(&str, &str); 3] = [
    ("aws_access_key_id", "access_key_id"),
    ("aws_secret_access_key", "secret_access_key"),
    ("aws_session_token", "session_token"),
];

type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What this process's environment and its user's files say.
///
/// # Errors
/// A file or variable is not what it must be, a profile that is named does not exist, or the program that a profile names
/// fails. No error has a credential.
pub fn s3() -> Result<Access, Failure> {
    from(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn from(environment: Environment<'_>) -> Result<Access, Failure> {
    let text = |name: &str| match environment(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(failed(format!("${name} is not UTF-8"))),
    };
    let mut all = BTreeMap::new();
    let profile = Profile::read(environment, text("AWS_PROFILE")?)?;
    let region = match text("AWS_REGION")? {
        Some(region) => Some(region),
        None => text("AWS_DEFAULT_REGION")?.or_else(|| profile.value("region")),
    };
    all.insert("region".to_owned(), region.unwrap_or("us-east-1".into()));
    let endpoint = match text("AWS_ENDPOINT_URL_S3")? {
        Some(endpoint) => Some(endpoint),
        None => text("AWS_ENDPOINT_URL")?.or_else(|| profile.value("endpoint_url")),
    };
    all.extend(endpoint.map(|endpoint| ("endpoint".to_owned(), endpoint)));
    let mut put = |name: &str, value: String| all.insert(name.to_owned(), value);
    if let (Some(id), Some(secret)) = (text("AWS_ACCESS_KEY_ID")?, text("AWS_SECRET_ACCESS_KEY")?) {
        put("access_key_id", id);
        put("secret_access_key", secret);
        if let Some(token) = text("AWS_SESSION_TOKEN")? {
            put("session_token", token);
        }
        return Ok(Access(all));
    }
    if text("AWS_WEB_IDENTITY_TOKEN_FILE")?.is_none() && profile.has_credentials() {
        all.extend(profile.credentials()?);
        return Ok(Access(all));
    }
    for (variable, name) in VARIABLES {
        if let Some(value) = text(variable)? {
            put(name, value);
        }
    }
    Ok(Access(all))
}

fn failed(why: String) -> Failure {
    Failure::new("cannot find credentials for the remote", why)
        .hint("set $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY, or $AWS_PROFILE")
}

/// What the files say of one profile.
#[derive(Default)]
struct Profile(BTreeMap<String, String>);

impl Profile {
    fn read(environment: Environment<'_>, named: Option<String>) -> Result<Profile, Failure> {
        let home = environment("HOME").map(PathBuf::from).unwrap_or_default();
        let file = |variable: &str, name: &str| {
            environment(variable).map_or_else(|| home.join(".aws").join(name), PathBuf::from)
        };
        let name = named.as_deref().unwrap_or("default");
        let config = match name {
            "default" => "default".to_owned(),
            name => format!("profile {name}"),
        };
        // The first file counts more.
        let files = [
            (file("AWS_CONFIG_FILE", "config"), config.as_str()),
            (file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name),
        ];
        let mut found = None;
        for (path, section) in files {
            let text = match std::fs::read(&path) {
                Ok(bytes) if bytes.len() <= TEXT_BYTES_MAX => String::from_utf8(bytes).ok(),
                Ok(_) => None,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(format!("{}: {error}", path.display()))),
            };
            let text = text.ok_or_else(|| {
                failed(format!(
                    "{} is not text of a sensible length",
                    path.display()
                ))
            })?;
            if let Some(keys) = section_of(&text, section) {
                found.get_or_insert_with(BTreeMap::new).extend(keys);
            }
        }
        match (found, named) {
            (Some(keys), _) => Ok(Profile(keys)),
            (None, None) => Ok(Profile::default()),
            (None, Some(name)) => Err(failed(format!("there is no profile {name:?} in ~/.aws"))),
        }
    }

    fn value(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }

    fn has_credentials(&self) -> bool {
        self.0.contains_key("aws_access_key_id") || self.0.contains_key("credential_process")
    }

    fn credentials(&self) -> Result<BTreeMap<String, String>, Failure> {
        if let (false, Some(program)) = (
            self.0.contains_key("aws_access_key_id"),
            self.0.get("credential_process"),
        ) {
            return of_program(program);
        }
        let named = |(key, name): &(&str, &str)| Some(((*name).to_owned(), self.value(key)?));
        Ok(KEYS.iter().filter_map(named).collect())
    }
}

/// The keys of a section of a file of profiles: lines `key = value`; `#` and `;` begin comments, and deeper lines belong to the
/// one before, which nothing here needs.
fn section_of(text: &str, wanted: &str) -> Option<BTreeMap<String, String>> {
    let mut keys = None;
    let mut inside = false;
    for line in text.lines() {
        let is_deeper = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split_once(']').map_or(name, |(name, _)| name);
            let name: Vec<&str> = name.split_whitespace().collect();
            inside = name.join(" ") == wanted;
            if inside {
                keys.get_or_insert_with(BTreeMap::new);
            }
        } else if let (true, false, Some((key, value))) = (inside, is_deeper, line.split_once('='))
        {
            let keys = keys.get_or_insert_with(BTreeMap::new);
            keys.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    keys
}

/// What a program prints: `{"Version": 1, "AccessKeyId": …, "SecretAccessKey": …, "SessionToken": …}`. It may ask on the
/// terminal.
fn of_program(program: &str) -> Result<BTreeMap<String, String>, Failure> {
    let failed = |why: &str| failed(format!("credential_process of the profile: {why}"));
    let output = Command::new("/bin/sh")
        .args(["-c", program])
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(&error.to_string()))?;
    if !output.status.success() {
        return Err(failed(&format!("it ended with {}", output.status)));
    }
    let answer = Some(&output.stdout)
        .filter(|bytes| bytes.len() <= TEXT_BYTES_MAX)
        .and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok())
        .filter(|answer| answer["Version"] == 1)
        .ok_or_else(|| failed("it does not print JSON of version 1"))?;
    let text = |key: &str| answer[key].as_str().map(str::to_owned);
    let (Some(id), Some(secret)) = (text("AccessKeyId"), text("SecretAccessKey")) else {
        return Err(failed("AccessKeyId or SecretAccessKey is missing"));
    };
    let mut all = BTreeMap::from([
        ("access_key_id".to_owned(), id),
        ("secret_access_key".to_owned(), secret),
    ]);
    all.extend(text("SessionToken").map(|token| ("session_token".to_owned(), token)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn found(variables: &[(&str, &str)], home: &Path) -> Result<Access, Failure> {
        from(&|name| {
            let home = (name == "HOME").then(|| home.as_os_str().to_owned());
            let given = variables.iter().find(|(known, _)| *known == name);
            home.or_else(|| given.map(|(_, value)| OsString::from(*value)))
        })
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        home
    }

    fn write(home: &Path, name: &str, text: &str) {
        std::fs::write(home.join(".aws").join(name), text).unwrap();
    }

    #[track_caller]
    fn is(access: &Access, wanted: &[(&str, &str)]) {
        let wanted: BTreeMap<String, String> = wanted
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(access.0, wanted);
    }

    #[test]
    fn the_environment_counts_more_than_a_profile_and_that_more_than_the_machine() {
        let home = home();
        is(
            &found(&[], home.path()).unwrap(),
            &[("region", "us-east-1")],
        );
        write(
            home.path(),
            "credentials",
            "[default]\naws_access_key_id = D\naws_secret_access_key=S=\n# no\n[other]\naws_access_key_id=O\naws_secret_access_key=P\naws_session_token=T\n",
        );
        write(
            home.path(),
            "config",
            "[default]\nregion = here\ns3 =\n  region = deeper\n[profile other]\nregion=there\nendpoint_url = http://e\n",
        );
        let of_default = [
            ("region", "here"),
            ("access_key_id", "D"),
            ("secret_access_key", "S="),
        ];
        is(&found(&[], home.path()).unwrap(), &of_default);
        let other = [("AWS_PROFILE", "other"), ("AWS_REGION", "named")];
        is(
            &found(&other, home.path()).unwrap(),
            &[
                ("region", "named"),
                ("endpoint", "http://e"),
                ("access_key_id", "O"),
                ("secret_access_key", "P"),
                ("session_token", "T"),
            ],
        );
        let own = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "F")];
        is(
            &found(&own, home.path()).unwrap(),
            &[
                ("region", "here"),
                ("access_key_id", "E"),
                ("secret_access_key", "F"),
            ],
        );
        let web = [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
            ("AWS_ROLE_ARN", "arn"),
        ];
        is(
            &found(&web, home.path()).unwrap(),
            &[
                ("region", "here"),
                ("web_identity_token_file", "/token"),
                ("role_arn", "arn"),
            ],
        );
        assert!(found(&[("AWS_PROFILE", "none")], home.path()).is_err());
    }

    #[test]
    fn a_program_of_the_profile_is_asked_and_its_failure_tells_no_secret() {
        let home = home();
        let with = |program: &str| {
            let text = format!("[default]\ncredential_process = {program}\n");
            write(home.path(), "config", &text);
            found(&[], home.path())
        };
        let printed = r#"echo '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "SessionToken": "C"}'"#;
        is(
            &with(printed).unwrap(),
            &[
                ("region", "us-east-1"),
                ("access_key_id", "A"),
                ("secret_access_key", "B"),
                ("session_token", "C"),
            ],
        );
        for (program, why) in [
            ("exit 3", "exit status: 3"),
            ("echo HIDDEN", "JSON of version 1"),
            (
                r#"echo '{"Version": 1, "AccessKeyId": "HIDDEN"}'"#,
                "SecretAccessKey is missing",
            ),
        ] {
            let failure = with(program).unwrap_err();
            assert!(failure.why.contains(why), "{}", failure.why);
            assert!(!failure.why.contains("HIDDEN"), "{}", failure.why);
        }
    }
}
