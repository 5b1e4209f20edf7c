//! Group key agreement on a ring, every member contributing: R. Dutta, R. Barua, 'Provably secure constant
//! round contributory group key agreement in dynamic setting', IEEE Trans. Inf. Theory 54(5), 2008; the
//! unauthenticated core is Burmester–Desmedt (1994/2005).
//!
//! Group: ristretto255 (RFC 9496), prime order q, generator G, written additively. U_1 … U_n sit in a
//! ring; indices are taken mod n. The code counts seats from 0.
//!
//! ```text
//! round 1   U_i: x_i ← Z_q                        X_i = x_i G                          → all
//! round 2   U_i: K_i^L = x_i X_{i−1}, K_i^R = x_i X_{i+1}, Y_i = K_i^R − K_i^L         → all
//! key       U_i: K̄_i = K_i^R, K̄_{i+1} = Y_{i+1} + K̄_i, …, K̄_{i+n−1} = K_i^L ?          sk = Σ K̄_j
//! ```
//! so sk = Σ x_j x_{j+1} G. Three types carry one member through: [`Round1`] → [`Round2`] → [`Key`]; each
//! is consumed by the next. Passive members of a join go [`Following`] → [`Round2`] → [`Key`] and
//! send nothing.
//!
//! Assumed of the network: nothing. Assumed of the caller: every message comes signed by its seat's member,
//! fresh (over [`Context::instance`]), and is handed in once per seat.
//!
//! Where we deviate from the paper, and why (each has a test named after it below):
//!
//! 1. **Leave, eviction, suspicion and periodic rekey are a full setup** with fresh x by everybody. In the
//!    paper only the leaver's neighbours draw anew; the leaver knows all right keys, so it walks the
//!    new ring from any unchanged pair and has the new key.
//! 2. **Join**: U_1 and U_n draw anew. With x_1, x_n kept, two colluding joiners of whom one echoes X_1
//!    recover x_n x_1 G, an old right key, and with the recorded old Y the previous key.
//! 3. **The seed of a join** is HKDF(sk, "DB/join", psid, joiners), never sk itself; psid is the old ring's
//!    transcript, and the new ring's session goes in too, so that no two attempts share an exponent.
//!    Who has one old key still has all later ones up to the next full setup: set up anew now and then.
//! 4. **Every X comes with a proof of knowledge of x** bound to session and seat, and equal X are refused for
//!    n > 2: nobody echoes (A9).
//! 5. **Y may carry a proof** that log_G X_i = log_{X_{i+1} − X_{i−1}} Y_i, so that a wrong Y names its
//!    sender; asked for when an attempt before it failed (A9). Without proofs ΣY = 0 and
//!    K̄_{i+n−1} = K_i^L are checked, which name nobody, and two colluders can still make members' keys
//!    differ: that shows at confirmation.
//! 6. **The key** is HKDF(enc(sk), salt = transcript, "DB/key"), confirmed by a MAC of each active member
//!    and bound by a commitment (A13).
//! 7. Encodings are canonical; the identity is refused but for Y at n ≤ 2, where it is the only right
//!    value (K^L = K^R). One member alone is a ring too.

mod element;
mod key;
mod proof;
mod round1;
mod round2;

#[cfg(test)]
mod broken;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use key::{CONFIRMATION_LEN, Key, Seed};
pub use round1::{CONTRIBUTION_LEN, Contribution, Following, Round1};
pub use round2::{Round2, Share};

use crate::hash::Transcript;

/// What every proof, share, confirmation and key of one ring is bound to (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context<'a> {
    /// The group's name.
    pub group: &'a str,
    /// Which of the group's keys is agreed here: 0 for the group's own, 1 and up for topic compartments.
    pub compartment: u16,
    /// The number of the epoch to be.
    pub epoch: u32,
    /// Which attempt at it.
    pub attempt: u32,
    /// What the ring is for.
    pub kind: Kind,
    /// Hash of the whole member set, sorted; not only of those in the ring.
    pub roster: [u8; 32],
    /// Hash of all else that the attempt was opened with: nonce, proposal, evictions, policy.
    pub instance: [u8; 32],
}

/// What a ring is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// All members, each with a fresh exponent.
    Setup = 1,
    /// [`join_ring`]: U_1, the seed, U_n and the joiners; the others follow.
    Join = 2,
}

/// Whether Y_i comes with its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Shares {
    /// 32 bytes each: the first attempt.
    Plain = 1,
    /// 96 bytes each: from the second attempt on.
    Proved = 2,
}

/// One ring of one attempt: its size and the hash of what it is bound to. Several run side by side, one
/// per compartment, with nothing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    session: [u8; 32],
    size: usize,
    shares: Shares,
}

impl Ring {
    /// A ring of `size` seats.
    ///
    /// # Panics
    /// If `size` is 0 or above 2¹⁶.
    pub fn new(context: &Context<'_>, size: usize, shares: Shares) -> Ring {
        assert!((1..=1 << 16).contains(&size), "a ring has a seat, and not too many");
        let session = Transcript::new("sealcast/v1/db/session")
            .add(b"ristretto255")
            .add(context.group.as_bytes())
            .add(&context.compartment.to_be_bytes())
            .add(&context.epoch.to_be_bytes())
            .add(&context.attempt.to_be_bytes())
            .add(&[context.kind as u8])
            .add(&context.roster)
            .add(&context.instance)
            .add(&(size as u32).to_be_bytes())
            .add(&[shares as u8])
            .finish();
        Ring { session, size, shares }
    }

    /// n.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of one encoded [`Share`].
    pub fn share_len(&self) -> usize {
        match self.shares {
            Shares::Plain => 32,
            Shares::Proved => 96,
        }
    }

    fn left(&self, seat: usize) -> usize {
        (seat + self.size - 1) % self.size
    }

    fn right(&self, seat: usize) -> usize {
        (seat + 1) % self.size
    }

    /// K^L = K^R for everybody, so Y is the identity and can be nothing else.
    fn is_trivial(&self) -> bool {
        self.size <= 2
    }
}

/// Who sits where when `joiners` are added to `members`, both in roster order: U_1, U_2 (whose exponent is the
/// seed, see [`SEED_SLOT`]), U_n, J_1 … J_m; `None` if there are fewer than three members or no
/// joiner, and a full setup is the way.
pub fn join_ring<T: Clone>(members: &[T], joiners: &[T]) -> Option<Vec<T>> {
    match members {
        [first, second, .., last] if !joiners.is_empty() => {
            let mut ring = vec![first.clone(), second.clone(), last.clone()];
            ring.extend_from_slice(joiners);
            Some(ring)
        }
        _ => None,
    }
}

/// The seat of the seed in a join's ring.
pub const SEED_SLOT: usize = 1;

/// What one or two seats did, or the ring as a whole; from the network, to be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Misbehaved {
    /// Not a canonical encoding, or of a value that cannot be.
    #[error("seat {0}: malformed")]
    Malformed(usize),
    /// X without knowledge of x, in this session and seat.
    #[error("seat {0}: exponent not proved")]
    Unproved(usize),
    /// Both know the one exponent.
    #[error("seats {0} and {1}: equal contributions")]
    Equal(usize, usize),
    /// In a join: not the exponent that all old members know.
    #[error("seat {0}: not the seed's exponent")]
    NotSeed(usize),
    /// Y is not what X demands.
    #[error("seat {0}: wrong share")]
    WrongShare(usize),
    /// The shares do not fit together, and without proofs nobody can tell whose is wrong.
    #[error("the shares do not close the ring")]
    Unclosed,
    /// Confirms another key than ours.
    #[error("seat {0}: key not confirmed")]
    Unconfirmed(usize),
}

impl Misbehaved {
    /// The seats that a next attempt should do without; empty where nobody can be named.
    pub fn culprits(&self) -> Vec<usize> {
        match *self {
            Misbehaved::Malformed(seat)
            | Misbehaved::Unproved(seat)
            | Misbehaved::NotSeed(seat)
            | Misbehaved::WrongShare(seat)
            | Misbehaved::Unconfirmed(seat) => vec![seat],
            Misbehaved::Equal(a, b) => vec![a, b],
            Misbehaved::Unclosed => vec![],
        }
    }
}
