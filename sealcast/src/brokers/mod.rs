//! A client of 3f + 1 brokers: registers, publishes with receipts, subscribes, reads, acts for administrators.
//!
//! ```text
//! callers ─ verbs ─▶ a session: group of keys and transport, a channel to each broker ◀─ its driver waits for sockets
//!    ▲                  │
//!    └── outcomes, ─────┘ ── subscriptions' inboxes
//! ```
//! [`Session::brokers`](crate::Session::brokers) shares a session, [`Session::into_brokers`](crate::Session::into_brokers) has one
//! for the handle alone.
//! Up to f brokers may be silent, slow or lying, and nobody notices; with more of them calls end with
//! [`Code::NoQuorum`]. Calls are awaited, or waited for with `.wait()`.

mod accusing;
mod credential;
mod evidence_store;
mod file;
mod inbox;
mod member;
mod outgoing;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sealcast_broker::operation::{Accusation, Body, Publication, Registration};
use sealcast_broker::protocol::Refusal;
use sealcast_broker::state::{Code as Became, OperationResult as Came};
use sealcast_client::{Answer, Done, PayloadKind};
use sealcast_delivery::SendError;
use sealcast_wire::{Now, limits};

pub(crate) use credential::{ClientStatus, ended};
pub(crate) use evidence_store::EvidenceStore;
pub use evidence_store::{Evidence, misled};
pub use file::{load, load_named, save};
pub(crate) use inbox::Inbox;
pub use inbox::Subscription;
pub(crate) use member::Record;
pub(crate) use member::registrations;
pub use member::{ClientKey, Purpose, registration, vouched};
#[doc(inline)]
pub use sealcast_broker::access::Access;
#[doc(inline)]
pub use sealcast_broker::cluster_file::{ClusterFile, VouchedKey};
#[doc(inline)]
pub use sealcast_broker::operation::{Client, Execute, Header, Interest, Operation, Policy};
#[doc(inline)]
pub use sealcast_broker::protocol::Status;
#[doc(inline)]
pub use sealcast_broker::receipt::Receipt;
#[doc(inline)]
pub use sealcast_broker::state::{Entry, Subject, SubjectStatus};
#[doc(inline)]
pub use sealcast_client::{
    Advertisement, Advertisements, ConfirmedSubscription, Content, Item, OperationOutcome, OrderStatus, Proofs, Read,
};
pub use sealcast_delivery::Token;
pub use sealcast_keys::Shortage;
pub use sealcast_wire::Utc;
pub(crate) use trouble::{no_quorum, rolled_back};

use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::{PublishError, Together};
use crate::refusals::{done, refused};
use crate::remedy::Remedy;
use crate::session::{BrokerLink, Call, Driven, Session, open_client};
use crate::url::Scheme;

/// A client of a cluster. Dropping one that was opened by itself ends its channels; subscriptions that stand in the order stay
/// there.
pub struct Brokers {
    driven: Driven,
    /// Whether it was opened for this handle alone.
    is_own: bool,
    timeout: Duration,
    /// Ends with its last user.
    _session: Session,
}

/// What a client is opened with.
pub struct Opening {
    /// The cluster; its file's authority is checked by whoever trusts one.
    pub cluster: Arc<ClusterFile>,
    /// The client's key and what it knew when it ran last.
    pub key: ClientKey,
    /// Make the client known where the brokers do not know it; whoever has several gives them each time it begins.
    pub registrations: Vec<Registration>,
    /// `Plain` or `Threshold`.
    pub keys: Scheme,
    /// How long a call may take.
    pub timeout: Duration,
    /// Publications that one signature vouches for, at most; a lone one goes at once all the same. [`BATCH_OPERATIONS`]
    /// unless there is a reason.
    pub batch_operations: usize,
    /// Whether evidence against publishers is brought before the brokers when it comes up (E4), as it should be.
    pub accuse: bool,
}

/// A publication to be made.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Topics with their values, if they have any.
    pub headers: Vec<Header>,
    /// What need not be kept from brokers.
    pub associated: Vec<u8>,
    /// Who may read it, beside what global policies say.
    pub access: Option<Access>,
    /// What brokers do with their key–value state.
    pub execute: Execute,
    /// What readers get.
    pub body: Vec<u8>,
}

/// A publication that has its place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The block that holds it.
    pub height: u64,
    /// As the client numbered it.
    pub number: u64,
    /// Its place among all operations.
    pub sn: u64,
    /// Its number at each of its headers.
    pub places: Vec<u64>,
    /// What its executable operation answered.
    pub answer: Vec<u8>,
}

/// A position in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicPosition {
    /// The number at the topic.
    pub ps: u64,
    /// What stands there; `None` is ⊥.
    pub publication: Option<(Entry, Content)>,
}

/// A place as it was read, sealed as it stands there.
type Found = (u64, Option<Box<(Entry, Publication)>>);

/// Where one broker stands, or why it does not say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrokerStatus {
    /// Its number.
    pub broker: u16,
    /// Where it listens for clients.
    pub address: String,
    /// What it says.
    pub said: std::result::Result<Status, String>,
}

impl BrokerStatus {
    /// For tests of what is made of it.
    #[doc(hidden)]
    pub fn new(broker: u16, address: String, said: std::result::Result<Status, String>) -> BrokerStatus {
        BrokerStatus { broker, address, said }
    }
}

impl Brokers {
    /// Starts a client with a key that is at hand: an administrator's own, or one for a while. Who has an identity opens a session:
    /// [`as_client`](crate::session::Opening::as_client). Channels are opened in the background: see [`Brokers::ready`].
    ///
    /// # Errors
    /// The system's own, and [`Code::Content`] if the client's record is of another cluster.
    pub fn open(opening: Opening) -> Result<Brokers> {
        open_client(opening)?.into_brokers()
    }

    /// The handle to the brokers that a session goes through.
    pub(crate) fn of_session(session: Session, driven: Driven, is_own: bool) -> Brokers {
        Brokers { driven, is_own, timeout: session.url().options.wait, _session: session }
    }

    /// Waits until f + 1 brokers have said where the order is.
    ///
    /// # Errors
    /// [`Code::NoQuorum`] with the silent ones.
    pub fn ready<'a>(&'a self) -> Call<'a, Result<OrderStatus>> {
        Call::new(async move { self.look(self.timeout, |it| it.handle.order_status().map(Ok)).await })
    }

    /// The same, and until the client is registered.
    ///
    /// # Errors
    /// [`Code::NoQuorum`], or why the brokers do not know the client.
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// let status = brokers.registered().wait()?;
    /// println!("block {}", status.height);
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn registered<'a>(&'a self) -> Call<'a, Result<OrderStatus>> {
        Call::new(async move {
            self.ready().await?;
            let known = |it: &BrokerLink| it.handle.order_status().filter(|it| it.registered);
            let came = self
                .look(self.timeout, |it| {
                    if let Some(why) = it.unregistered() {
                        return Some(Err(why));
                    }
                    // Until all that is said of it is known: by that it is judged what it may read.
                    known(it).filter(|_| !it.handle.is_registering()).map(Ok)
                })
                .await;
            came.or_else(|why| match why.code() {
                // It was known before: too few brokers to order anything still answer what it reads.
                Code::NoQuorum | Code::TimedOut => self.driven.look(|it| known(it)).ok_or(why),
                _ => Err(why),
            })
        })
    }

    /// The last second of the time for which somebody vouches for this client, once little of it is left: a tenth, or two
    /// weeks. When it is over its subscriptions end, and [`Subscription::next_timeout`] says so.
    pub fn ends_soon(&self) -> Option<Utc> {
        self.driven.look(|it| it.ends_soon())
    }

    /// Waits for the threshold key: the file's, or one that 2f + 1 brokers signed.
    ///
    /// # Errors
    /// [`Code::NotReady`] if there is none in time.
    pub fn key<'a>(&'a self, timeout: Duration) -> Call<'a, Result<VouchedKey>> {
        Call::new(async move {
            let found = self.wait(timeout, || self.driven.call(|now, it| it.look_for_key(now)).transpose()).await;
            found.map_err(|e| match e.code() {
                Code::NoQuorum if self.driven.look(|it| it.handle.order_status().is_some()) => {
                    Error::new(Code::NotReady, "the brokers have no threshold key yet").with_remedy(Remedy::AwaitKey)
                }
                _ => e,
            })
        })
    }

    /// Who we are to the brokers.
    pub fn client(&self) -> Client {
        self.driven.look(|it| it.handle.client())
    }

    /// The cluster.
    pub fn cluster(&self) -> Arc<ClusterFile> {
        self.driven.look(|it| it.cluster.clone())
    }

    /// Publishes, and waits until f + 1 brokers say that it has its place.
    ///
    /// # Errors
    /// Why it has none: not registered, denied by policy, too large, no quorum.
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// use sealcast::brokers::Outgoing;
    ///
    /// let access = "exchange:desk = fx".parse().expect("a condition");
    /// let published = brokers.publish(&Outgoing::new("market/eurusd", "1.0842").readable_by(access)).wait()?;
    /// println!("number {}", published.places[0]);
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn publish<'a>(&'a self, outgoing: &'a Outgoing) -> Call<'a, Result<Published>> {
        Call::new(async move { self.publish_together(outgoing, &[]).await })
    }

    /// The same for the outgoing body and `more` of them in one ciphertext: see [`Brokers::begin_together`].
    ///
    /// # Errors
    /// Those of [`Brokers::publish`] and [`Brokers::begin_together`].
    pub fn publish_together<'a>(&'a self, outgoing: &'a Outgoing, more: &'a [&'a [u8]]) -> Call<'a, Result<Published>> {
        Call::new(async move {
            let token = self.begin_together(outgoing, more).await?;
            match self.outcome(token).await? {
                OperationOutcome::Executed { height, number, outcome } => {
                    done(&outcome)?;
                    published(height, number, &outcome.detail, outgoing.headers.len())
                        .ok_or_else(|| Error::new(Code::Signature, "the brokers' answer cannot be read"))
                }
                // It was sealed anew for the one in force each time that policy or key was replaced (E6).
                OperationOutcome::Superseded { .. } => Err(self.driven.look(|it| it.expired()).unwrap_or_else(|| {
                    Error::new(Code::TimedOut, "policy or key changed each time that it was sealed anew")
                })),
                other => Err(lost(&other)),
            }
        })
    }

    /// Begins to publish: [`Brokers::outcome`] tells what became of it.
    ///
    /// # Errors
    /// Nothing was taken: no quorum yet, no key yet, too large, a queue is full for too long.
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// use sealcast::brokers::Outgoing;
    ///
    /// let tokens = (0..100).map(|n| brokers.begin(&Outgoing::new("market/ticks", format!("{n}"))).wait());
    /// for token in tokens.collect::<Result<Vec<_>, _>>()? {
    ///     brokers.outcome(token).wait()?;
    /// }
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn begin<'a>(&'a self, outgoing: &'a Outgoing) -> Call<'a, Result<Token>> {
        Call::new(async move { self.begin_together(outgoing, &[]).await })
    }

    /// Begins to publish the outgoing body and `more` of them in one ciphertext, as one publication: they have one place,
    /// and readers get all of them or none. A ciphertext costs the brokers and each reader the same however many there are.
    ///
    /// # Errors
    /// As [`Brokers::begin`], where the limit is on all bodies together; [`Code::Usage`] without keys.
    pub fn begin_together<'a>(&'a self, outgoing: &'a Outgoing, more: &'a [&'a [u8]]) -> Call<'a, Result<Token>> {
        Call::new(async move {
            // Once for all of it: each comparison of process ids is a system call.
            self.driven.check()?;
            let (seals, is_group) =
                self.driven.look(|it| (it.seals(), matches!(it.payload_kind, PayloadKind::Group { .. })));
            if is_group {
                return Err(Error::new(
                    Code::Usage,
                    "a group's members publish through their session, which seals for them",
                ));
            }
            if !more.is_empty() && !seals {
                return Err(Error::new(Code::Usage, "in clear nothing is sealed together; keys=threshold does"));
            }
            if !outgoing.keeps_to_limits(more) {
                return Err(self.too_large(outgoing, more));
            }
            if !seals {
                return self
                    .wait_checked(self.timeout, || {
                        let taken = self
                            .driven
                            .call(|now, it| it.handle.publish(now, outgoing.publication(outgoing.body.clone())));
                        self.begun(outgoing, more, taken.map(|it| it.map_err(PublishError::from)))
                    })
                    .await;
            }
            let (envelope, bodies) =
                (outgoing.publication(Vec::new()).envelope(), [&[&outgoing.body[..]], more].concat());
            let message = Together { envelope: &envelope, bodies: &bodies };
            self.wait_checked(self.timeout, || self.begun(outgoing, more, self.driven.publish(message))).await
        })
    }

    /// What became of beginning to publish; `None` if it will do later.
    fn begun(
        &self,
        outgoing: &Outgoing,
        more: &[&[u8]],
        taken: Result<std::result::Result<Token, PublishError>>,
    ) -> Option<Result<Token>> {
        let why = match taken {
            Err(why) => return Some(Err(why)),
            Ok(Ok(token)) => return Some(Ok(token)),
            Ok(Err(why)) => why,
        };
        Some(Err(match why {
            PublishError::NotReady | PublishError::Send(SendError::Full | SendError::NotReady | SendError::Retired) => {
                return None;
            }
            PublishError::Denied | PublishError::Send(SendError::TooLong) => self.too_large(outgoing, more),
            PublishError::Send(SendError::Old) => self.too_old(),
            PublishError::Send(SendError::BadTopic) => outgoing.bad_topic(),
            why => self.driven.refused(&outgoing.headers[0].topic, why),
        }))
    }

    /// Which limit a publication is over.
    fn too_large(&self, outgoing: &Outgoing, more: &[&[u8]]) -> Error {
        outgoing.too_large(more, self.driven.look(|it| it.seals().then_some(it.cluster.suite)))
    }

    /// Why nothing can be sealed: the newest block is too old by the clock here.
    fn too_old(&self) -> Error {
        let most = limits::SEAL_BLOCK_AGE_MAX.as_secs();
        let what = match self.driven.age() {
            Some(age) => format!(
                "the newest block that f + 1 brokers show is {} s old by this machine's clock; it may be {most} s old",
                age.as_secs()
            ),
            None => "f + 1 brokers have not shown their newest block yet, and nothing is sealed before".to_owned(),
        };
        Error::new(Code::NotReady, what).with_remedy(Remedy::CheckClock)
    }

    /// Waits for what becomes of an operation.
    ///
    /// # Errors
    /// [`Code::NoQuorum`].
    pub fn outcome<'a>(&'a self, token: Token) -> Call<'a, Result<OperationOutcome>> {
        Call::new(async move {
            match self.done(token).await? {
                Done::Outcome(outcome) => Ok(outcome),
                _ => Err(Error::new(Code::Usage, "this was no operation")),
            }
        })
    }

    /// Lets the brokers execute an operation; the block that did, and the operation's number.
    ///
    /// # Errors
    /// Why it was not executed.
    pub fn submit<'a>(&'a self, operation: &'a Operation) -> Call<'a, Result<(u64, u64)>> {
        Call::new(async move {
            if let Operation::Administer(admin) = operation {
                // Of whom they do not know brokers take no act that was executed.
                let next = self.next_act().await?;
                if admin.number < next {
                    done(&Came { code: Became::AdminNumber, detail: next.to_be_bytes().to_vec() })?;
                }
            }
            let (height, number, came) = self.execute(operation).await?;
            done(&came).map(|()| (height, number))
        })
    }

    /// The number that the administrators' next act has, as f + 1 brokers back it.
    ///
    /// # Errors
    /// [`Code::NoQuorum`].
    pub fn next_act<'a>(&'a self) -> Call<'a, Result<u64>> {
        Call::new(async move {
            let stands = self.status().await?;
            let mut said: Vec<u64> = stands.iter().filter_map(|it| Some(it.said.as_ref().ok()?.next_act)).collect();
            said.sort_unstable_by(|a, b| b.cmp(a));
            let faulty = stands.len().saturating_sub(1) / 3;
            said.get(faulty).copied().ok_or_else(|| Error::new(Code::NoQuorum, "too few brokers say where they stand"))
        })
    }

    /// Brings evidence against the publisher of what stands at `sn` before the brokers, who suspend it (E4); the block
    /// that did.
    ///
    /// # Errors
    /// [`Code::Content`] if this is no such evidence, and why it changes nothing.
    pub fn accuse<'a>(&'a self, sn: u64, record: &'a [u8]) -> Call<'a, Result<u64>> {
        Call::new(async move {
            let accusation = Accusation::of_record(sn, record)
                .map_err(|_| Error::new(Code::Content, "this is no evidence against a publisher"))?;
            self.submit(&Operation::Accuse(Box::new(accusation))).await.map(|(height, _)| height)
        })
    }

    async fn execute(&self, operation: &Operation) -> Result<(u64, u64, Came)> {
        let token = self.take(|now, it| it.submit(now, operation.clone())).await?;
        match self.outcome(token).await? {
            OperationOutcome::Executed { height, number, outcome } => Ok((height, number, outcome)),
            other => Err(lost(&other)),
        }
    }

    /// Subscribes; one that stood already for the same interest goes on where it was left.
    ///
    /// # Errors
    /// [`Code::NoQuorum`], or why not; [`Code::Usage`] if another [`Subscription`] to the same is read here.
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// use std::time::Duration;
    ///
    /// let mut prices = brokers.subscribe("market/#".parse().expect("an interest")).wait()?;
    /// while let Some(item) = prices.next_timeout(Duration::from_secs(1))? {
    ///     println!("{item:?}");
    /// }
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn subscribe<'a>(&'a self, interest: Interest) -> Call<'a, Result<Subscription>> {
        Call::new(async move {
            let token = self.take(|now, it| it.handle.subscribe(now, &interest)).await?.ok_or_else(|| {
                Error::new(Code::Usage, "this client reads a subscription to the same already")
                    .with_hint("read that one, or drop it before")
            })?;
            match self.done(token).await? {
                Done::Subscribed(id) => {
                    let inbox = self.driven.call(|_, it| it.read(id))?;
                    Ok(Subscription::new(inbox, self.driven.clone()))
                }
                Done::Outcome(OperationOutcome::Executed { outcome, .. }) => match done(&outcome) {
                    Err(e) => Err(e),
                    Ok(()) => Err(Error::new(Code::Signature, "the brokers' answer cannot be read")),
                },
                Done::Outcome(other) => Err(lost(&other)),
                _ => Err(Error::new(Code::Usage, "this was no subscription")),
            }
        })
    }

    /// Ends a subscription for good: nothing is kept for it any more.
    ///
    /// # Errors
    /// As [`Brokers::submit`].
    pub fn unsubscribe<'a>(&'a self, subscription: &'a Subscription) -> Call<'a, Result<()>> {
        Call::new(async move { self.end_subscription(subscription.id()).await })
    }

    /// The same of a subscription that [`Brokers::subscriptions`] names.
    ///
    /// # Errors
    /// As [`Brokers::submit`].
    pub fn end_subscription<'a>(&'a self, id: u64) -> Call<'a, Result<()>> {
        Call::new(async move { self.submit(&Operation::Unsubscribe(id)).await.map(drop) })
    }

    /// This client's subscriptions that stand at the brokers, whether or not somebody reads them here.
    ///
    /// # Errors
    /// [`Code::NoQuorum`].
    pub fn subscriptions<'a>(&'a self) -> Call<'a, Result<Vec<ConfirmedSubscription>>> {
        Call::new(async move {
            self.ready().await?;
            Ok(self.driven.look(|it| it.handle.confirmed_subscriptions()))
        })
    }

    /// Reads; nothing where nothing stands yet. Without `linearizable` it may be of a moment ago, though never older than
    /// what this client has seen; with it a mark is ordered before, and all that was acknowledged to anybody before the
    /// call is in what is read (E9).
    ///
    /// # Errors
    /// [`Code::NoQuorum`], also if too few shares come of what is sealed; [`Code::DeniedPolicy`]; [`Code::NotKept`] if what
    /// stands at the first place is no longer kept ([`Brokers::oldest_kept`]).
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// use sealcast::brokers::{Header, Read};
    ///
    /// let header = Header { topic: "market/eurusd".to_owned(), value: None };
    /// for position in brokers.read(&Read::Range { header, from: 0, limit: 10 }, true).wait()? {
    ///     println!("{}", position.ps);
    /// }
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn read<'a>(&'a self, what: &'a Read, linearizable: bool) -> Call<'a, Result<Vec<TopicPosition>>> {
        Call::new(async move {
            match self.ask(what, linearizable, self.timeout).await? {
                Answer::Places(places) => self.opened(places.into_iter().map(|it| (it.ps, it.found)).collect()).await,
                _ => Err(Error::new(Code::Usage, "this was no place")),
            }
        })
    }

    /// The first place at or behind `from`, where nothing is kept any more, of which the brokers keep the publication; the
    /// place of the topic's next publication if they keep none. A later call may find a later place.
    ///
    /// # Errors
    /// As [`Brokers::read`].
    pub fn oldest_kept<'a>(&'a self, header: &'a Header, from: u64) -> Call<'a, Result<u64>> {
        Call::new(async move {
            // What is kept is all behind one place: in growing steps beyond it, then by halves back to it.
            let (mut gone, mut step) = (from, 1_u64);
            let mut kept = gone.saturating_add(step);
            while !self.is_kept(header, kept).await? && kept < u64::MAX {
                (gone, step) = (kept, step.saturating_mul(2));
                kept = gone.saturating_add(step);
            }
            while kept - gone > 1 {
                let middle = gone + (kept - gone) / 2;
                *if self.is_kept(header, middle).await? { &mut kept } else { &mut gone } = middle;
            }
            Ok(kept)
        })
    }

    /// Whether the brokers keep what stands at a place.
    async fn is_kept(&self, header: &Header, from: u64) -> Result<bool> {
        let what = Read::Range { header: header.clone(), from, limit: 1 };
        match self.ask(&what, false, self.timeout).await {
            Ok(_) => Ok(true),
            Err(e) if e.code() == Code::NotKept => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Reads a value of the brokers' key–value state.
    ///
    /// # Errors
    /// As [`Brokers::read`].
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// let value = brokers.value("market/limits", b"fx", true).wait()?;
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn value<'a>(&'a self, topic: &'a str, key: &'a [u8], linearizable: bool) -> Call<'a, Result<Option<Vec<u8>>>> {
        Call::new(async move {
            let what = Read::Value { topic: topic.to_owned(), key: key.to_vec() };
            match self.ask(&what, linearizable, self.timeout).await? {
                Answer::Value(value) => Ok(value),
                _ => Err(Error::new(Code::Usage, "this was no value")),
            }
        })
    }

    /// The global policy in force and its number, which is 0 before the first, as f + 1 brokers say within `timeout`: to
    /// clients for whom somebody vouches, and to the administrators' own keys ([`ClientKey::own`]).
    ///
    /// # Errors
    /// As [`Brokers::read`].
    pub fn policy<'a>(&'a self, timeout: Duration) -> Call<'a, Result<(u64, Policy)>> {
        Call::new(async move {
            match self.ask(&Read::Policy, false, timeout).await? {
                Answer::Policy { number, policy } => Ok((number, policy)),
                _ => Err(Error::new(Code::Usage, "this was no policy")),
            }
        })
    }

    /// What has become of a client, a certificate or a claim, as f + 1 brokers say: to administrators' own keys alone
    /// ([`ClientKey::own`]).
    ///
    /// # Errors
    /// As [`Brokers::read`].
    pub fn subject<'a>(&'a self, subject: &'a Subject) -> Call<'a, Result<SubjectStatus>> {
        Call::new(async move {
            match self.ask(&Read::Subject(subject.clone()), false, self.timeout).await? {
                Answer::Subject(status) => Ok(status),
                _ => Err(Error::new(Code::Usage, "this was no subject")),
            }
        })
    }

    /// The receipt of an operation of ours, which anybody who has the cluster file can check.
    ///
    /// # Errors
    /// [`Code::NoQuorum`].
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// let receipt = brokers.receipt(175, 0).wait()?;
    /// assert!(receipt.verify(&brokers.cluster().genesis).is_ok());
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn receipt<'a>(&'a self, height: u64, number: u64) -> Call<'a, Result<Receipt>> {
        let lack = || Error::new(Code::NoQuorum, "too few brokers have kept what makes a receipt");
        Call::new(self.receipt_by(
            move |now, it| it.handle.receipt(now, height, number),
            move || lack().with_remedy(Remedy::ReceiptWhenPublishing),
        ))
    }

    /// The receipt of a publication that we may read, whoever published it: that it stands at these places, and what it
    /// is by its hash, which anybody who has the cluster file can check.
    ///
    /// # Errors
    /// [`Code::NoQuorum`], also if its block is no longer kept.
    pub fn receipt_of<'a>(&'a self, entry: &'a Entry) -> Call<'a, Result<Receipt>> {
        let lack =
            || Error::new(Code::NoQuorum, "too few brokers have kept what makes a receipt, or may show it to us");
        Call::new(self.receipt_by(
            move |now, it| it.handle.receipt_of(now, entry),
            move || lack().with_remedy(Remedy::ReceiptWhenReading),
        ))
    }

    /// Waits until 2f + 1 brokers have signed that they executed an operation of ours (E2): then it binds, whoever of them
    /// is asked. The signatures.
    ///
    /// # Errors
    /// [`Code::NoQuorum`].
    pub fn bound<'a>(&'a self, height: u64, number: u64) -> Call<'a, Result<Receipt>> {
        let lack = || Error::new(Code::NoQuorum, "fewer than 2f+1 brokers say that they have executed it");
        Call::new(self.receipt_by(
            move |now, it| it.handle.bound(now, height, number),
            move || lack().with_remedy(Remedy::AwaitExecution),
        ))
    }

    /// The receipt that a question brings, or what it means that none comes.
    async fn receipt_by(
        &self,
        ask: impl FnMut(Now, &mut BrokerLink) -> std::result::Result<Token, SendError> + Send,
        lack: impl FnOnce() -> Error + Send,
    ) -> Result<Receipt> {
        let token = self.take(ask).await?;
        match self.done(token).await? {
            Done::Receipt(Some(receipt)) => Ok(*receipt),
            _ => Err(lack()),
        }
    }

    /// Where the brokers stand; the silent ones with the reason.
    ///
    /// # Errors
    /// Those of the session.
    ///
    /// ```no_run
    /// # fn example(brokers: &sealcast::brokers::Brokers) -> sealcast::Result<()> {
    /// for broker in brokers.status().wait()? {
    ///     println!("{} {:?}", broker.address, broker.said);
    /// }
    /// # Ok(())
    /// # }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn status<'a>(&'a self) -> Call<'a, Result<Vec<BrokerStatus>>> {
        Call::new(async move {
            let token = self.take(|now, it| it.handle.status(now)).await?;
            let said = match self.done(token).await? {
                Done::Status(said) => said,
                _ => BTreeMap::new(),
            };
            Ok(self.driven.look(|it| it.stands(&said)))
        })
    }

    /// Where the brokers stand when none of them may answer: those that do within `timeout`.
    ///
    /// # Errors
    /// Those of the session.
    pub fn survey<'a>(&'a self, timeout: Duration) -> Call<'a, Result<Vec<BrokerStatus>>> {
        Call::new(async move {
            // Whoever is not there yet may come.
            let all = self.look(timeout, |it| it.handle.is_complete().then_some(Ok(()))).await;
            if all.is_ok()
                && self.ready().await.is_ok()
                && let Ok(stands) = self.status().await
            {
                return Ok(stands);
            }
            let stands = self.status().await;
            stands.or_else(|_| Ok(self.driven.look(|it| it.stands(&BTreeMap::new()))))
        })
    }

    /// What others advertise, since the last call. It comes to whoever subscribes to anything, and to whoever says that it
    /// wants it: [`Brokers::want_advertisements`].
    pub fn advertisements(&self) -> Advertisements {
        self.driven.look(|it| it.handle.advertised())
    }

    /// Registers anew, and says whether this client wants advertisements also while it has no subscription (Chios' intent).
    /// It holds until it says otherwise; of a client with several registrations until it begins anew.
    ///
    /// # Errors
    /// [`Code::Usage`] for a client that was opened without a registration, and as [`Brokers::submit`].
    pub fn want_advertisements<'a>(&'a self, intent: bool) -> Call<'a, Result<()>> {
        Call::new(async move {
            let mut came = Err(Error::new(Code::Usage, "without a registration there is nothing to say so with"));
            for it in self.driven.look(|it| it.registrations.clone()) {
                // Any that still holds says it.
                came = self.submit(&Operation::Register(Registration { intent, ..it })).await.map(drop);
                if came.is_ok() {
                    break;
                }
            }
            came
        })
    }

    /// The proofs that brokers keep of what others did (E4), by who gave them: to whom [`Brokers::policy`] is told. Nobody
    /// is convicted by who gives a proof; `sealcast brokers evidence verify` checks it.
    ///
    /// # Errors
    /// Those of the session.
    pub fn proofs<'a>(&'a self) -> Call<'a, Result<Proofs>> {
        Call::new(async move {
            let token = self.take(|now, it| it.handle.proofs(now)).await?;
            match self.done(token).await? {
                Done::Proofs(proofs) => Ok(proofs),
                _ => Err(Error::new(Code::Usage, "this was no question for proofs")),
            }
        })
    }

    /// Evidence of misbehaviour that came up here, since the last call.
    pub fn evidence(&self) -> Vec<Evidence> {
        self.driven.look(|it| it.evidence_store.take())
    }

    /// Sends what is queued and ends all channels, unless a session goes on with them. Evidence that came up is brought before
    /// the brokers first, for as long as they usually need to order something, and what was published gets its place if
    /// they order anything. It blocks this thread meanwhile.
    pub fn close(self) {
        let timeout = ACCUSING.min(self.timeout);
        // Without a quorum others bring it, or this client when it comes upon it again.
        let _ = Call::new(self.look(timeout, |it| it.evidence_store.has_accused().then_some(Ok(())))).wait();
        if self.is_own {
            let cannot = |it: &BrokerLink| it.cut_off().is_some() || !it.is_registered();
            let settled = |it: &mut BrokerLink| (it.handle.is_settled() || cannot(it)).then_some(Ok(()));
            let _ = Call::new(self.look(SETTLING, settled)).wait();
        }
    }

    async fn ask(&self, what: &Read, linearizable: bool, timeout: Duration) -> Result<Answer> {
        let mut tries = 0..DENIED_TRIES;
        let done = loop {
            let token = self.take(|now, it| it.handle.read(now, what.clone(), linearizable)).await?;
            let done = self.done_within(token, timeout).await?;
            let denied = matches!(done, Done::Read(Err(sealcast_broker::protocol::Why::Denied)));
            // Brokers that have not executed our registration yet say the same as if there were none.
            let is_early = denied && self.driven.look(|it| it.is_registered());
            if !is_early || tries.next().is_none() {
                break done;
            }
            self.driven.pause(LOOK_AGAIN).await;
        };
        match done {
            Done::Read(Ok(answer)) => Ok(answer),
            Done::Read(Err(sealcast_broker::protocol::Why::Nothing)) => Ok(Answer::Places(Vec::new())),
            Done::Read(Err(why)) => Err(match why {
                sealcast_broker::protocol::Why::Denied => Error::new(
                    Code::DeniedPolicy,
                    "the brokers do not let us read: nobody vouches for us, or no longer",
                )
                .with_remedy(Remedy::Register),
                sealcast_broker::protocol::Why::Pruned => {
                    Error::new(Code::NotKept, "the brokers no longer keep what stands there")
                        .with_remedy(Remedy::ReadFromOldest)
                }
                why => Error::new(Code::NoQuorum, format!("the brokers have no answer: {why}"))
                    .with_remedy(Remedy::ShowOrder),
            }),
            _ => Err(Error::new(Code::Usage, "this was no question")),
        }
    }

    /// Opens what is sealed among places that were read.
    async fn opened(&self, places: Vec<Found>) -> Result<Vec<TopicPosition>> {
        let mut read = Vec::with_capacity(places.len());
        for (ps, found) in places {
            let Some((entry, publication)) = found.map(|it| *it) else {
                read.push(TopicPosition { ps, publication: None });
                continue;
            };
            let content = match &publication.body {
                Body::Sealed(_) => {
                    let sn = entry.sn;
                    self.take(|now, it| it.handle.open(now, &entry, &publication)).await?;
                    let opened = self.look(self.timeout, |it| it.handle.opened(sn).map(Ok)).await;
                    if let Err(e) = &opened {
                        self.driven.look(|it| it.handle.end_read(sn));
                        let missing = self.driven.status().unwrap_or_default().missing;
                        let missing = missing.into_iter().find(|it| it.index == sn);
                        let is_late = matches!(e.code(), Code::NoQuorum | Code::TimedOut);
                        if let Some(missing) = missing.filter(|_| is_late) {
                            return Err(self.explain(&missing).await);
                        }
                    }
                    opened?.map(Content::Bodies)
                }
                _ => Content::of(publication.body),
            };
            read.push(TopicPosition { ps, publication: content.map(|content| (entry, content)) });
        }
        Ok(read)
    }

    /// Calls a verb until it is taken.
    async fn take<T>(
        &self,
        mut verb: impl FnMut(Now, &mut BrokerLink) -> std::result::Result<T, SendError> + Send,
    ) -> Result<T> {
        self.wait(self.timeout, || match self.driven.call(|now, it| verb(now, it)) {
            Ok(Err(SendError::Full | SendError::NotReady)) => None,
            Ok(taken) => Some(taken.map_err(Error::from)),
            Err(why) => Some(Err(why)),
        })
        .await
    }

    async fn done(&self, token: Token) -> Result<Done> {
        self.done_within(token, self.timeout).await
    }

    async fn done_within(&self, token: Token, timeout: Duration) -> Result<Done> {
        let found = self.wait(timeout, || self.driven.done(token).map(Ok)).await;
        if found.is_err() {
            self.driven.forget(token);
        }
        found
    }

    /// Waits until a check makes something of what came.
    async fn wait<T>(&self, timeout: Duration, check: impl FnMut() -> Option<Result<T>> + Send) -> Result<T> {
        self.driven.check()?;
        self.wait_checked(timeout, check).await
    }

    /// The same for who knows that the process is the session's.
    async fn wait_checked<T>(
        &self,
        timeout: Duration,
        mut check: impl FnMut() -> Option<Result<T>> + Send,
    ) -> Result<T> {
        let failed = || self.driven.look(|it| it.failed()).map(Err);
        let found = self.driven.until(timeout, || check().or_else(failed)).await;
        found.unwrap_or_else(|| Err(self.driven.look(|it| it.no_quorum(timeout))))
    }

    /// The same, where looking is enough.
    async fn look<T>(
        &self,
        timeout: Duration,
        mut check: impl FnMut(&mut BrokerLink) -> Option<Result<T>> + Send,
    ) -> Result<T> {
        self.wait(timeout, || self.driven.look(&mut check)).await
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        if self.is_own {
            self.driven.end();
        }
    }
}

/// The error of an operation that has no place.
fn lost(outcome: &OperationOutcome) -> Error {
    match outcome {
        OperationOutcome::Refused(Refusal::Unregistered) => refused(Became::Unregistered.into()),
        OperationOutcome::Refused(Refusal::Proof) => refused(Became::Proof.into()),
        OperationOutcome::Refused(why) => Error::new(Code::Signature, format!("the brokers refuse to order it: {why}")),
        OperationOutcome::Forgotten => {
            Error::new(Code::TimedOut, "it was executed long ago, and what came of it is no longer kept")
        }
        OperationOutcome::Superseded { .. } | OperationOutcome::Executed { .. } => {
            Error::new(Code::NotReady, "policy, key or number changed meanwhile").with_hint("try again")
        }
    }
}

/// `u64 sn ‖ u64 ps … ‖ answer`
fn published(height: u64, number: u64, detail: &[u8], headers: usize) -> Option<Published> {
    let (sn, rest) = detail.split_first_chunk::<8>()?;
    let (places, answer) = rest.split_at_checked(8 * headers)?;
    let places = places.chunks(8).map(|it| u64::from_be_bytes(it.try_into().expect("chunks of 8"))).collect();
    Some(Published { height, number, sn: u64::from_be_bytes(*sn), places, answer: answer.to_vec() })
}

/// Operations of one batch: more make the signature no cheaper that is worth the wait.
pub const BATCH_OPERATIONS: usize = 32;

/// How long a client waits before it reads again what was denied.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often a read that was denied is tried again by a client that is registered.
const DENIED_TRIES: usize = 10;
/// How long a client that ends waits until its evidence is ordered.
const ACCUSING: Duration = Duration::from_secs(5);
/// How long a client that ends waits until what it published has its place, beyond what its caller waited for.
const SETTLING: Duration = Duration::from_secs(1);
