//! The centre's log: one row for each registration and each revocation, numbered from 1 and chained by hashes.
//!
//! ```text
//! | 1 | registration |                                                                  it is the rest of the row
//! | 2 | principal, 32 | number, 8 | at, 8 | by, 16-bit length | reason, 16-bit length |
//! link of row n = H("sealcast/v1/centre/log", link of row n-1, row n)                  all zeros before the first
//! ```
//! Two centres with one link hold the same rows.

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::{Registration, is_name};
use sealcast_wire::limits::{NAME_BYTES_MAX, REASON_BYTES_MAX, REGISTRATION_BYTES_MAX};
use sealcast_wire::{CertHash, Malformed, Reader, Utc, Writer};

/// Hash of all rows up to one.
pub type Link = [u8; 32];

/// The link before the first row.
pub const FIRST_LINK: Link = [0; 32];

/// One row of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A principal was registered.
    Registered(Registration),
    /// A principal was revoked.
    Revoked(Revocation),
}

/// A revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Whose registration no longer counts.
    pub principal: CertHash,
    /// From 1, without gaps: the centre's revocation number from then on (C1).
    pub number: u64,
    /// The centre's time, seconds since 1970.
    pub at: Utc,
    /// Name of the principal that asked for it, or of the centre's administrator; for people to read.
    pub by: String,
    /// Why, for people to read.
    pub reason: String,
}

impl Row {
    /// The row's bytes, at most [`ROW_BYTES`]; the same on every centre.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Row::Registered(registration) => w.u8(REGISTERED).raw(&registration.to_bytes()),
            Row::Revoked(it) => {
                w.u8(REVOKED).raw(&it.principal.0).u64(it.number).u64(it.at.0 as u64);
                w.bytes16(it.by.as_bytes()).bytes16(it.reason.as_bytes())
            }
        };
        w.finish()
    }

    /// Reads a row.
    ///
    /// # Errors
    /// [`Malformed`], also where the same content could be written otherwise.
    pub fn from_bytes(bytes: &[u8]) -> Result<Row, Malformed> {
        let mut r = Reader::new(bytes);
        match r.u8()? {
            REGISTERED => Ok(Row::Registered(Registration::from_bytes(r.rest())?)),
            REVOKED => {
                let (principal, number, at) = (CertHash(r.array()?), r.u64()?, Utc(r.u64()? as i64));
                let mut text = |most| String::from_utf8(r.bytes16(most)?.to_vec()).map_err(|_| Malformed);
                let (by, reason) = (text(NAME_BYTES_MAX)?, text(REASON_BYTES_MAX)?);
                r.end()?;
                if !is_name(&by) || number == 0 {
                    return Err(Malformed);
                }
                Ok(Row::Revoked(Revocation { principal, number, at, by, reason }))
            }
            _ => Err(Malformed),
        }
    }

    /// The link of this row, where `previous` is that of the row before it.
    pub fn link(&self, previous: &Link) -> Link {
        Transcript::new("sealcast/v1/centre/log").add(previous).add(&self.to_bytes()).finish()
    }
}

/// Bytes of the longest row.
pub const ROW_BYTES: usize = 1 + REGISTRATION_BYTES_MAX;
const _: () = assert!(1 + 32 + 8 + 8 + 2 + NAME_BYTES_MAX + 2 + REASON_BYTES_MAX <= ROW_BYTES);

const REGISTERED: u8 = 1;
const REVOKED: u8 = 2;

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::center::tests::realm::{ALL, Realm};

    pub(in crate::center) fn rows() -> Vec<Row> {
        let mut realm = Realm::new();
        let [alice, bob] = ["alice", "bob"].map(|name| realm.register(name, ALL).registration);
        let (principal, by) = (alice.hash(), "bob".to_owned());
        let revoked = Revocation { principal, number: 1, at: Utc(1_790_000_000), by, reason: "lost laptop".into() };
        vec![Row::Registered(alice), Row::Registered(bob), Row::Revoked(revoked)]
    }

    #[test]
    fn a_row_is_read_as_it_was_written_and_not_otherwise() {
        for row in rows() {
            let bytes = row.to_bytes();
            assert!(bytes.len() <= ROW_BYTES);
            assert_eq!(Row::from_bytes(&bytes), Ok(row));
            for cut in 0..bytes.len() {
                assert_eq!(Row::from_bytes(&bytes[..cut]), Err(Malformed));
            }
            assert_eq!(Row::from_bytes(&[&bytes[..], &[0]].concat()), Err(Malformed));
        }
    }

    #[test]
    fn a_link_is_of_all_rows_in_their_order() {
        let rows = rows();
        let link = |order: &[usize]| order.iter().fold(FIRST_LINK, |link, at| rows[*at].link(&link));
        let all = [link(&[]), link(&[0]), link(&[0, 1]), link(&[1, 0]), link(&[0, 1, 2]), link(&[0, 2])];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }

    /// Golden value: a stand-by of another version must come to the same links.
    #[test]
    fn rule_g9_the_links_of_this_version_do_not_change() {
        let at = Utc(7);
        let revoked = Revocation { principal: CertHash([1; 32]), number: 2, at, by: "bob".into(), reason: "x".into() };
        let link = Row::Revoked(revoked).link(&FIRST_LINK);
        assert_eq!(link[..8], 0x994b_05b4_2a65_2d02_u64.to_be_bytes());
    }

    proptest! {
        #[test]
        fn rule_g2_no_bytes_make_it_panic(kind in 0..4_u8, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Row::from_bytes(&bytes);
            if let Ok(row) = Row::from_bytes(&[&[kind], &bytes[..]].concat()) {
                prop_assert_eq!(row.to_bytes(), [&[kind], &bytes[..]].concat());
            }
        }
    }
}
