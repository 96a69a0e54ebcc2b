//! What a failed request means, told without what the service or the library wrote about it: that may hold credentials.

use object_store::Error;
use remote::bucket::wire::Said;

/// Longest code of the service that is told.
const CODE_BYTES_MAX: usize = 64;

/// What a failure means to whoever asked.
pub fn said(error: &Error) -> Said {
    let text = all_texts(error);
    let (status, code) = (status(&text), code(&text));
    let shown = match (status, code) {
        (Some(status), Some(code)) => format!("HTTP status {status}, {code}"),
        (Some(status), None) => format!("HTTP status {status}"),
        (None, _) => root(error),
    };
    match error {
        // Whoever put under a condition asked whether it holds.
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
            Said::Refused
        }
        Error::NotFound { .. } if code == Some("NoSuchBucket") => {
            Said::Unsupported("there is no such bucket".into())
        }
        Error::NotFound { .. } => Said::Absent,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Said::Denied(shown),
        Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. } => Said::Unsupported(shown),
        _ => match status {
            Some(401 | 403) => Said::Denied(shown),
            Some(416) => Said::Short,
            Some(408 | 409 | 425 | 429) => Said::Transient(shown),
            Some(400..500) if code != Some("RequestTimeout") => Said::Unsupported(shown),
            _ if is_without_credentials(&text) => {
                Said::Denied("there are no credentials for it".into())
            }
            _ => Said::Transient(shown),
        },
    }
}

/// The texts of an error and of what led to it.
fn all_texts(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        text.push('\n');
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// What led to an error in the first place: of the network, or of the system.
fn root(error: &Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    let text: String = last.to_string().chars().take(200).collect();
    // A body or an address that a library put there.
    match text.contains(['<', '\n']) || text.contains("://") {
        true => "the request failed".into(),
        false => text,
    }
}

/// The HTTP status that the library names.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// The service's code, which its answers have in XML.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = (1..=CODE_BYTES_MAX).contains(&code.len())
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_code.then_some(code)
}

/// The library asked the machine's own service for credentials, because it has none.
fn is_without_credentials(text: &str) -> bool {
    text.contains("169.254.169.254")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn failures_are_told_by_status_and_code_alone() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>\
                    <AWSAccessKeyId>AKSECRET</AWSAccessKeyId></Error>";
        let Said::Denied(why) = said(&generic(body)) else {
            panic!("{:?}", said(&generic(body)))
        };
        assert_eq!(why, "HTTP status 403, SignatureDoesNotMatch");
        let transient = |text: &str| matches!(said(&generic(text)), Said::Transient(_));
        for text in [
            "status code: 500 ",
            "status code: 503 Slow: <Code>SlowDown</Code>",
            "status code: 429 ",
            "status code: 400 Bad: <Code>RequestTimeout</Code>",
            "connection reset",
        ] {
            assert!(transient(text), "{text}");
        }
        for text in ["status code: 400 ", "status code: 411 <Code>a b</Code>"] {
            assert!(
                matches!(said(&generic(text)), Said::Unsupported(_)),
                "{text}"
            );
        }
        assert_eq!(said(&generic("status code: 416 ")), Said::Short);
        assert_eq!(
            root(&generic("see http://user:secret@host/")),
            "the request failed"
        );
    }
}
