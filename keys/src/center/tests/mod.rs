//! The scheme's tests; `realm` makes principals and a centre that knows them.

mod attacks;
mod kdc;
mod life;
mod net;
mod one_way;
pub(in crate::center) mod realm;
