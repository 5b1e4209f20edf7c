//! Why something received was not used: every drop is counted by its reason (G7). And why others made nothing of what we
//! sent.

/// Why those who carry and execute messages made nothing of one, by their own number: whoever speaks to them knows what it
/// means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u16);

/// A reason to drop. The order is that of `Dropped::ALL` and of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Dropped {
    /// Not of our form, or a form that cannot be.
    #[error("malformed")]
    Malformed,
    /// The tag or signature does not verify.
    #[error("auth")]
    Auth,
    /// Seen before, or too old to tell.
    #[error("replay")]
    Replay,
    /// Sealed for an epoch or domain that we hold no key of.
    #[error("no-key")]
    NoKey,
    /// Sealed under a superseded key, and nobody vouched for it (A5).
    #[error("old-key")]
    OldKey,
    /// Its sender has no right to it, or it lacks the signature that the topic demands (A1).
    #[error("policy")]
    Policy,
    /// A queue or window was full.
    #[error("queue")]
    Queue,
    /// More than an unregistered client may cost us.
    #[error("rate")]
    Rate,
    /// A message whose missing parts did not come in time.
    #[error("incomplete")]
    Incomplete,
    /// Another group's, or another protocol's, traffic on the same address.
    #[error("foreign")]
    Foreign,
    /// Valid, but for a step that is over or has not come.
    #[error("stale")]
    Stale,
    /// A fragment that contradicts another one of the same message.
    #[error("conflict")]
    Conflict,
    /// Longer than we take into memory (`limits::MESSAGE_BYTES_MAX`).
    #[error("too-long")]
    TooLong,
}

impl Dropped {
    /// All reasons, in the order of their counters.
    pub const ALL: [Dropped; 13] = [
        Dropped::Malformed,
        Dropped::Auth,
        Dropped::Replay,
        Dropped::NoKey,
        Dropped::OldKey,
        Dropped::Policy,
        Dropped::Queue,
        Dropped::Rate,
        Dropped::Incomplete,
        Dropped::Foreign,
        Dropped::Stale,
        Dropped::Conflict,
        Dropped::TooLong,
    ];
}

impl From<crate::codec::Malformed> for Dropped {
    fn from(_: crate::codec::Malformed) -> Dropped {
        Dropped::Malformed
    }
}

/// One counter per reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; Dropped::ALL.len()]);

impl Drops {
    /// Counts one.
    pub fn count(&mut self, why: Dropped) {
        self.0[why as usize] += 1;
    }

    /// Counts so many.
    pub fn count_many(&mut self, why: Dropped, count: u64) {
        let all = &mut self.0[why as usize];
        *all = all.saturating_add(count);
    }

    /// How many were dropped for this reason.
    pub fn of(&self, why: Dropped) -> u64 {
        self.0[why as usize]
    }

    /// Adds another set of counters to this one.
    pub fn add(&mut self, other: &Drops) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// How many were counted since `told`, which is these counters from now on; `None` if none were.
    pub fn since(&self, told: &mut Drops) -> Option<Drops> {
        if self == told {
            return None;
        }
        let more = self.0.iter().zip(told.0).map(|(now, then)| now - then);
        let mut since = Drops::default();
        since.0.iter_mut().zip(more).for_each(|(it, more)| *it = more);
        *told = self.clone();
        Some(since)
    }

    /// Reasons with their counts, those that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (Dropped, u64)> + '_ {
        Dropped::ALL.into_iter().map(|why| (why, self.of(why))).filter(|(_, n)| *n > 0)
    }
}
