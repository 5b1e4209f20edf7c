//! What became of an operation: codes that mean the same in every version, and a few bytes of detail.

use sealcast_wire::{Malformed, Reader, Reason, Utc, Writer, limits};

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationResult {
    /// In one word.
    pub code: Code,
    /// What belongs to the word; its form stands with each [`Code`], and without a word there it is empty.
    pub detail: Vec<u8>,
}

/// What became of an operation, in one word. Numbers are stable. Only `Done` changed anything but the
/// client's next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Code {
    /// It was executed. `u64 sn`, then of `pub` its number at each header (`u64` each) and the executable
    /// operation's answer; of `sync` the `u64 height`.
    Done = 0,
    /// The client used its number before.
    Duplicate = 1,
    /// Its number comes too early; `u64` the number that is next.
    Gap = 2,
    /// Nobody vouches for the client, or no longer.
    Unregistered = 3,
    /// Administrators ended the client.
    Revoked = 4,
    /// A registration's proof does not hold.
    Proof = 5,
    /// The credential was revoked.
    CredentialRevoked = 6,
    /// Sealed for another global policy (E6); `u64` the one in force.
    StalePolicy = 7,
    /// Sealed to another key epoch (E6); `u32` the one in force.
    StaleEpoch = 8,
    /// The global policy does not let the client publish there.
    Denied = 9,
    /// The client, or all together, would have too many subscriptions or attributes.
    TooMany = 10,
    /// The client has no such subscription.
    NoSubscription = 11,
    /// What is to be incremented is no number, or the sum none of 64 bits.
    NoNumber = 12,
    /// Compare-and-set found something else: `0`, or `1` and the value.
    Mismatch = 13,
    /// Not signed by enough administrators.
    Signatures = 14,
    /// Administrators' acts are numbered; `u64` the number that is next.
    AdminNumber = 15,
    /// An act or an accusation that would change nothing, or turn something back.
    Futile = 16,
    /// Evidence convicted the publisher (E4): until administrators lift it, it publishes nothing; `u64` the block since
    /// when.
    Suspended = 17,
    /// What is accused does not stand there (E4).
    Unfounded = 18,
}

impl OperationResult {
    pub(super) fn new(code: Code) -> OperationResult {
        OperationResult { code, detail: Vec::new() }
    }

    pub(super) fn with(code: Code, detail: impl Into<Vec<u8>>) -> OperationResult {
        OperationResult { code, detail: detail.into() }
    }

    pub(super) fn number(code: Code, number: u64) -> OperationResult {
        OperationResult::with(code, number.to_be_bytes())
    }

    /// `u16 code ‖ bytes16 detail`
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u16(self.code as u16).bytes16(&self.detail);
    }

    /// Reads what [`OperationResult::encode`] wrote.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<OperationResult, Malformed> {
        let code = Code::from_number(r.u16()?).ok_or(Malformed)?;
        Ok(OperationResult { code, detail: r.bytes16(limits::OUTCOME_DETAIL_BYTES_MAX)?.to_vec() })
    }
}

impl Code {
    /// The code with this number.
    fn from_number(number: u16) -> Option<Code> {
        CODES.into_iter().find(|code| *code as u16 == number)
    }
}

impl From<Code> for Reason {
    fn from(code: Code) -> Reason {
        Reason(code as u16)
    }
}

impl TryFrom<Reason> for Code {
    type Error = Malformed;

    fn try_from(reason: Reason) -> Result<Code, Malformed> {
        Code::from_number(reason.0).ok_or(Malformed)
    }
}

/// All codes.
const CODES: [Code; 19] = [
    Code::Done,
    Code::Duplicate,
    Code::Gap,
    Code::Unregistered,
    Code::Revoked,
    Code::Proof,
    Code::CredentialRevoked,
    Code::StalePolicy,
    Code::StaleEpoch,
    Code::Denied,
    Code::TooMany,
    Code::NoSubscription,
    Code::NoNumber,
    Code::Mismatch,
    Code::Signatures,
    Code::AdminNumber,
    Code::Futile,
    Code::Suspended,
    Code::Unfounded,
];

/// Why a block was not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// Blocks execute in order, each once.
    #[error("blocks are executed in order, and block {0} must be executed next")]
    Height(u64),
    /// The storage failed. The state in memory is no longer what is stored: it must be opened again.
    #[error(transparent)]
    Store(#[from] super::store::StoreError),
}

/// Time never goes back: a block is executed at its own time or that of the one before, the later.
pub(super) fn later(block: Utc, before: Utc) -> Utc {
    block.max(before)
}
