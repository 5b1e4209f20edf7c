//! Which versions of the wire a member speaks, and which one an epoch uses.
//!
//! A card, which the certificate's key signs, names the versions that its holder speaks; the short id and the roster bind
//! them. An epoch uses the highest version that all of its members speak. Nobody chooses it: who proposes names it, every
//! member computes it from the cards, and a proposal that names another one proves that its author lies. So nobody but the
//! holder of a certificate can make its members speak less (RFC 8446, 4.1.3, detects by a mark what is signed here).

use sealcast_wire::{Malformed, Reader, Writer};

/// A set of versions, never empty: 1 to [`Versions::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Versions(u16);

impl Versions {
    /// What this program speaks.
    pub const OURS: Versions = Versions(1 << 1);
    /// The type of a proposal has four bits for it.
    pub const MAX: u8 = 15;

    /// These and no others, for programs of a later day.
    ///
    /// # Panics
    /// If there is none, or one that is no version.
    #[cfg(any(test, feature = "misbehaving"))]
    pub fn of(versions: &[u8]) -> Versions {
        let bits = versions.iter().fold(0, |bits, version| bits | 1_u16 << version);
        assert!(Versions::is_good(bits), "versions count from 1");
        Versions(bits)
    }

    fn is_good(bits: u16) -> bool {
        bits != 0 && bits & 1 == 0
    }

    /// Whether it is one of them.
    pub fn contains(self, version: u8) -> bool {
        version <= Versions::MAX && self.0 >> version & 1 == 1
    }

    /// The versions in both sets; `None` if there is none.
    pub fn and(self, other: Versions) -> Option<Versions> {
        Some(Versions(self.0 & other.0)).filter(|both| both.0 != 0)
    }

    /// The versions that all of these speak.
    pub fn common(all: impl IntoIterator<Item = Versions>) -> Option<Versions> {
        all.into_iter().map(Some).reduce(|a, b| a?.and(b?)).flatten()
    }

    /// The highest one.
    pub fn highest(self) -> u8 {
        self.0.ilog2() as u8
    }

    /// One after the other, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (1..=Versions::MAX).filter(move |version| self.contains(*version))
    }

    pub(super) fn to_bytes(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    pub(super) fn write(self, w: &mut Writer) {
        w.u16(self.0);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Versions, Malformed> {
        Some(r.u16()?).filter(|bits| Versions::is_good(*bits)).map(Versions).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_that_all_speak_is_used() {
        let (one, two, both) = (Versions::of(&[1]), Versions::of(&[2]), Versions::of(&[1, 2]));
        assert_eq!(Versions::common([both, both]).map(Versions::highest), Some(2));
        assert_eq!(Versions::common([both, one, both]).map(Versions::highest), Some(1));
        assert_eq!((Versions::common([both, one, two]), Versions::common([])), (None, None));
        assert!(both.iter().eq([1, 2]) && Versions::OURS == one);
    }

    #[test]
    fn rule_g2_no_version_and_version_0_are_malformed() {
        for (bits, good) in [(0_u16, false), (1, false), (3, false), (2, true), (0xFFFE, true)] {
            assert_eq!(Versions::read(&mut Reader::new(&bits.to_be_bytes())).is_ok(), good, "{bits:016b}");
        }
    }
}
