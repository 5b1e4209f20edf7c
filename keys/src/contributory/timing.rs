//! How long things wait. Every wait ends, every retry backs off with jitter (G7).

use std::time::Duration;

pub(super) use crate::timers::jitter;

/// What a member waits for. The order breaks ties of equal times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Ask again to be let in.
    Join,
    /// Propose, unless somebody else does first.
    Propose,
    /// Ask for what the running attempt lacks; give up on who is silent.
    Resend,
    /// What is delivered in the view is not settled in time.
    Flush,
    /// Ask for cards and proposals that were mentioned.
    Fetch,
    /// Say what we know of statements.
    State,
    /// Say a statement again.
    Tell,
    /// Say that the group is here.
    Beacon,
    /// Say so to newcomers, before they found another one.
    Greet,
    /// The key is old.
    Rekey,
    /// Say again that we leave.
    Leave,
    /// Hand out our own sending keys (A1).
    SenderKey,
    /// Judge certificates and the CRL's age anew.
    Judge,
}

/// At most one time per timer.
pub(super) type Timers = crate::timers::Timers<Timer>;

/// How much longer somebody in no group waits for its elders to propose, by how long it had been there
/// when the last JOIN came.
pub(super) fn seniority_wait(age: Duration) -> Duration {
    let micros = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    let there = micros.saturating_add(SENIORITY_MILLIS * 1000);
    Duration::from_micros(SENIORITY_SQUARE_MILLIS * 1_000_000 / there)
}

/// How long a member may say nothing in an agreement that waits for it.
pub(super) fn silent(detect: Duration) -> Duration {
    (detect / SILENT_PART).clamp(SILENT_MIN, SILENT_MAX)
}

/// After how long without progress an attempt has failed, though nobody is silent.
pub(super) fn stuck(detect: Duration) -> Duration {
    silent(detect) * 5 / 2
}

/// The wait of the member at a rank before it does what rank 0 does at once: the first hear each other
/// well within [`RANK`], the many after them share out the rest.
pub(super) fn rank_wait(rank: usize) -> Duration {
    let near = rank.min(8) as u32;
    let far = rank.saturating_sub(8) as u32;
    RANK * near + RANK_FAR * far
}

/// Who is in no group waits so long for others from its own start: who came first has heard the most
/// JOINs, and so proposes first.
pub(super) const COLLECT: Duration = Duration::from_millis(40);
/// And longer, if it was there for a short time only when the last JOIN came: this many square
/// milliseconds, divided by that time.
pub(super) const SENIORITY_SQUARE_MILLIS: u64 = 300;
/// Added to that time.
pub(super) const SENIORITY_MILLIS: u64 = 6;
/// Whose JOIN is heard so soon after our own start may have started before us.
pub(super) const TOGETHER: Duration = Duration::from_millis(2);
/// No JOIN for so long: those heard are worth an agreement of their own.
pub(super) const QUIET: Duration = Duration::from_millis(22);
/// An agreement starts at latest so long after the first JOIN for it.
pub(super) const QUIET_MAX: Duration = Duration::from_millis(80);
/// Newcomers who heard nothing of a group for so long may soon propose one.
pub(super) const NEWCOMERS_ALONE: Duration = Duration::from_millis(28);
/// A JOIN that was sent so long before a proposal had the time to arrive.
pub(super) const CROSSING: Duration = Duration::from_millis(12);
/// Between the turns of those who are in no group yet: about a LAN's delay.
pub(super) const RANK_UNGROUPED: Duration = Duration::from_micros(1500);
/// Between one rank's turn and the next one's; several times a LAN's delay.
pub(super) const RANK: Duration = Duration::from_millis(10);
/// The same from the ninth rank on.
pub(super) const RANK_FAR: Duration = Duration::from_millis(4);
/// First wait before asking again.
pub(super) const RTO: Duration = Duration::from_millis(40);
/// How often the space between two proposals of ours doubles, from [`RTO`], while none of them succeeds.
pub(super) const PROPOSE_DOUBLINGS: u32 = 5;
/// Longest wait before asking again.
pub(super) const RTO_MAX: Duration = Duration::from_millis(100);
/// Who says nothing in an agreement that waits for it is left out after this part of the time of silence after
/// which a member is suspected at all: 600 ms of 3 s.
const SILENT_PART: u32 = 5;
/// At least so long: some questions and their answers must find the time.
const SILENT_MIN: Duration = Duration::from_millis(300);
/// At most so long: whoever waits to be let in does so meanwhile.
const SILENT_MAX: Duration = Duration::from_secs(3);
/// A joiner named in a proposal has so long to say the first word.
pub(super) const SILENT_JOINER: Duration = Duration::from_millis(240);
/// First wait before asking again to be let in.
pub(super) const JOIN_RETRY: Duration = Duration::from_millis(200);
/// Longest such wait.
pub(super) const JOIN_RETRY_MAX: Duration = Duration::from_secs(2);
/// Who asked to be let in and was not heard again for so long is forgotten.
pub(super) const WANTING: Duration = Duration::from_secs(8);
/// Nobody else for so long: a group of one.
pub(super) const LONE: Duration = Duration::from_millis(300);
/// Others had so long to answer our first JOIN before we make a key without them: a group says that it is here after
/// [`GREET`], and proposes after [`QUIET`].
pub(super) const ANSWERED: Duration = Duration::from_millis(25);
/// The same where we would make it with one other alone: several of a group are heard in that time, though some of what
/// they say is lost.
pub(super) const ANSWERED_PAIR: Duration = Duration::from_millis(60);
/// A member of a group that is heard is waited for so long: somewhat longer than from one [`BEACON`] to the next.
pub(super) const ELSEWHERE: Duration = Duration::from_millis(1_300);
/// For so many `detect` after somebody came to a group, members of another one that are heard keep it from beginning an order:
/// strikes end sooner.
pub(super) const APART_DETECTS: u32 = 3;
/// Not heard for so long, it is a new sign when it is.
pub(super) const ELSEWHERE_FORGOTTEN: Duration = Duration::from_secs(30);
/// First time for which the proposals of one are not followed whose epoch nobody else vouched for; doubles each time.
pub(super) const DOUBT: Duration = Duration::from_secs(2);
/// So often that may be no fault of its own; after that the time grows up to [`STRIKE_MAX`].
pub(super) const MISTAKES: u32 = 3;
/// Epochs that one may name to us to follow on, each within that time after the last one.
pub(super) const BASES_NAMED: u32 = 3;
/// Signs of others, of which nothing came for so long: a group of one all the same.
pub(super) const FOUND_ANYWAY: Duration = Duration::from_secs(10);
/// Proposals of one member that come to nothing before it is not followed for a while.
pub(super) const VAIN_FREE: u32 = 6;
/// Half of the first such while; doubles each time.
pub(super) const VAIN: Duration = Duration::from_millis(125);
/// One of them is forgiven each time so much time went by.
pub(super) const VAIN_FORGIVEN: Duration = Duration::from_secs(5);
/// How often a group says that it is here.
pub(super) const BEACON: Duration = Duration::from_secs(1);
/// How soon newcomers hear that there is a group: well before they would propose one, see [`COLLECT`].
pub(super) const GREET: Duration = Duration::from_millis(10);
/// How soon after an install, for those who missed it.
pub(super) const BEACON_FIRST: Duration = Duration::from_millis(60);
/// How soon a statement is said for the second time; then four times as long after.
pub(super) const TELL: Duration = Duration::from_millis(40);
/// How often it is said in all.
pub(super) const TELL_TIMES: u32 = 3;
/// How often a leaver says so.
pub(super) const LEAVE_RETRY: Duration = Duration::from_millis(50);
/// How many times.
pub(super) const LEAVE_TRIES: u32 = 4;
/// How often certificates and the CRL's age are judged anew.
pub(super) const JUDGE: Duration = Duration::from_secs(60);
/// First time for which a joiner that did not answer is not asked again; doubles each time.
pub(super) const STRIKE: Duration = Duration::from_millis(500);
/// Longest such time.
pub(super) const STRIKE_MAX: Duration = Duration::from_secs(60);
/// Longest time for which no run of a certificate is asked again because others of its runs did not answer.
pub(super) const GHOST_MAX: Duration = Duration::from_secs(4);
/// After so many joins a full setup heals the ring (tcrypto 4.2, rule 2).
pub(super) const JOINS_PER_SETUP: u32 = 16;
