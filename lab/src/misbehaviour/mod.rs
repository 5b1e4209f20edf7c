//! Misbehaviour has a name: one small actor each.

/// Who misbehaves, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misbehaviour {
    /// An outsider who sends again what it heard, at once and much later.
    Replayer,
    /// An outsider who sends bytes of every form that it can think of, and changed copies of what it heard.
    Forger,
    /// An outsider who sends as much as it can.
    Flooder,
}
