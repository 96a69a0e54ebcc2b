//! Trees to and from the store: storing, loading, importing, and reading file data wherever its pieces are.

pub(crate) mod data;
pub(crate) mod import;
pub(crate) mod journals;
pub(crate) mod load;
pub(crate) mod store;
