//! Names of errnos, by which programs tell errors of files apart.

use engine::{Error, errno};

/// Name of the errno with which a file operation fails that meets this error; `None` for an error that no file
/// operation meets.
pub fn name(error: &Error) -> Option<&'static str> {
    use errno::*;
    let name = match error.errno() {
        EPERM => "EPERM",
        ENOENT => "ENOENT",
        EIO if is_of_files(error) => "EIO",
        ENXIO => "ENXIO",
        E2BIG => "E2BIG",
        EAGAIN => "EAGAIN",
        EACCES => "EACCES",
        EBUSY => "EBUSY",
        EEXIST => "EEXIST",
        EXDEV => "EXDEV",
        ENOTDIR => "ENOTDIR",
        EISDIR => "EISDIR",
        EINVAL => "EINVAL",
        EFBIG => "EFBIG",
        ENOSPC => "ENOSPC",
        EROFS => "EROFS",
        EMLINK => "EMLINK",
        ERANGE => "ERANGE",
        ENAMETOOLONG => "ENAMETOOLONG",
        ENOTEMPTY => "ENOTEMPTY",
        ELOOP => "ELOOP",
        ENODATA => "ENODATA",
        EOPNOTSUPP => "EOPNOTSUPP",
        ESTALE => "ESTALE",
        EDQUOT => "EDQUOT",
        _ => return None,
    };
    Some(name)
}

/// Errors of what lies below files; of all others EIO says nothing.
fn is_of_files(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. }
            | Error::Journal(_)
            | Error::Store(_)
            | Error::Damaged { .. }
            | Error::Denied { .. }
            | Error::BaseChanged(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_files_have_names_and_others_have_none() {
        for (error, wanted) in [
            (Error::NotFound, Some("ENOENT")),
            (Error::NotDir, Some("ENOTDIR")),
            (Error::IsDir, Some("EISDIR")),
            (Error::NotEmpty, Some("ENOTEMPTY")),
            (Error::Quota { quota: 1 }, Some("EDQUOT")),
            (Error::LeadsOut(Vec::new()), Some("EXDEV")),
            (Error::LinkLoop(Vec::new()), Some("ELOOP")),
            (Error::NoSuchBranch("b".into()), None),
            (Error::Cancelled, None),
        ] {
            assert_eq!(name(&error), wanted, "{error:?}");
        }
        let io = Error::io("f")(std::io::ErrorKind::Other.into());
        assert_eq!(name(&io), Some("EIO"));
    }
}
