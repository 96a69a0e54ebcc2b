//! What every bucket promises.

use remote::Error;
use remote::bucket::{Bucket, Condition, Etag, Put};

/// The version that a put made.
pub fn done(put: Put) -> Etag {
    match put {
        Put::Done(etag) => etag,
        Put::Refused => panic!("refused"),
    }
}

/// What every bucket promises to one who is alone.
pub fn keeps_the_promises(b: &dyn Bucket) {
    assert_eq!(b.get("a/x", 10).unwrap(), None);
    assert_eq!(b.get_range("a/x", 0..1).unwrap(), None);
    b.delete("a/x").unwrap();

    let first = done(b.put("a/x", b"hello", Condition::Absent).unwrap());
    assert_eq!(
        b.put("a/x", b"other", Condition::Absent).unwrap(),
        Put::Refused
    );
    let got = b.get("a/x", 5).unwrap().unwrap();
    assert_eq!((got.bytes.as_slice(), &got.etag), (&b"hello"[..], &first));

    let second = done(b.put("a/x", b"world!", Condition::Matches(&first)).unwrap());
    assert_eq!(
        b.put("a/x", b"again", Condition::Matches(&first)).unwrap(),
        Put::Refused
    );
    assert_eq!(
        b.put("a/none", b"", Condition::Matches(&first)).unwrap(),
        Put::Refused
    );
    assert_eq!(b.get("a/none", 5).unwrap(), None);
    assert_eq!(b.get("a/x", 6).unwrap().unwrap().etag, second);
    assert!(matches!(
        b.get("a/x", 5),
        Err(Error::TooLarge {
            bytes: 6,
            max: 5,
            ..
        })
    ));

    assert_eq!(b.get_range("a/x", 1..4).unwrap().unwrap(), b"orl");
    assert_eq!(b.get_range("a/x", 6..6).unwrap().unwrap(), b"");
    assert!(matches!(
        b.get_range("a/x", 3..7),
        Err(Error::Damaged { .. })
    ));

    b.put("b", b"", Condition::Always).unwrap();
    b.put("b", b"1", Condition::Always).unwrap();
    b.put("a/c/d", b"22", Condition::Always).unwrap();
    let names = |prefix| {
        let listed = b.list(prefix).unwrap().into_iter();
        listed.map(|l| (l.name, l.bytes)).collect::<Vec<_>>()
    };
    let all = [("a/c/d", 2), ("a/x", 6), ("b", 1)].map(|(n, len)| (n.to_owned(), len));
    assert_eq!(names(""), all);
    assert_eq!(names("a/"), all[..2]);
    assert_eq!(names("c/"), []);
    b.delete("b").unwrap();
    b.delete("b").unwrap();
    assert_eq!(names(""), all[..2]);
    for bad in ["../x", "/etc/passwd", ".lock", "A"] {
        assert!(matches!(
            b.put(bad, b"", Condition::Always),
            Err(Error::BadName { .. })
        ));
        assert!(matches!(b.get(bad, 1), Err(Error::BadName { .. })));
    }
}
