//! The scheme's tests; `realm` makes principals and a centre that knows them.

mod kdc;
pub(super) mod realm;
