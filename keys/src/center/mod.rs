//! A key distribution centre makes pair keys, and a leader hands out the group's: LSGC's scheme, rebuilt.
//!
//! Source: McDaniel, Honeyman and Prakash, "Lightweight Secure Group Communication" (LSGC, 1998), as corrected in
//! [`sealcast_crypto::leighton_micali`].
//!
//! | file | what |
//! |---|---|
//! | `ask` | what members ask the centre, and what it answers |
//! | `kdc` | the centre |

pub mod ask;
pub mod kdc;
#[cfg(test)]
mod tests;
