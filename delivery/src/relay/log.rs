//! The log at the directory: appending to it, reading it, and what is kept beside it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sealcast_relay::follower::{Answer, Call, Entry, Follower, Misbehaviour, Outcome as Became, Progress};
use sealcast_relay::ids::{AppendKey, DeviceId, GroupId};
use sealcast_relay::log::LogEntry;
use sealcast_relay::receipt::{RECEIPT_BYTES, Receipt};
use sealcast_relay::request::Blob;
use sealcast_relay::response::Refusal;
use sealcast_wire::frame::KIND_SEALED;
use sealcast_wire::{
    CertHash, Dropped, Drops, EpochId, Fetch, FetchId, Fetched, Header, KeyPackages, Malformed, Monotonic, Now,
    Protect, Source, Utc, limits,
};

use super::beacon::Beacons;
use super::devices::Devices;
use super::signing::Signing;
use super::{Config, DIRECTORY, Handle};
use crate::memory::keys_message;
use crate::{Outcome, Output, SendError, Token};

/// A member's end of a group's log.
pub(super) struct Log {
    /// The name of a certificate's device there.
    pub(super) device: Box<dyn Fn(&CertHash) -> DeviceId + Send>,
    pub(super) signing: Signing,
    pub(super) follower: Follower,
    handle: Handle,
    pub(super) beacons: Beacons,
    /// It has the key that we pin.
    is_known: bool,
    /// We found the group: there is no log yet.
    founds: bool,
    /// It is known where the log begins for us.
    has_begun: bool,
    is_connected: bool,
    /// Requests on their way, in the order in which they are answered.
    calls: VecDeque<(Call, Purpose)>,
    requests: VecDeque<Vec<u8>>,
    /// Messages to be appended, those of the key scheme before data; the first one may be under way.
    appends: VecDeque<Waiting>,
    /// The epoch in use.
    epoch: Option<EpochId>,
    /// How often the first one lost the head to others.
    lost: u32,
    /// The key that signed it.
    proposed_by: AppendKey,
    /// The position behind all that was known when it was proposed.
    first_place: u64,
    /// The one under way is of no use any more.
    is_withdrawn: bool,
    /// One is to be proposed, once nothing else is to be done.
    proposes: bool,
    /// What is to be kept there, until it is.
    pub(super) provided: BTreeMap<Fetch, Vec<u8>>,
    pub(super) asked: BTreeMap<FetchId, Requested>,
    /// The heads at the last positions.
    cuts: BTreeMap<u64, [u8; 32]>,
    /// Receipts of positions that a later run may begin at.
    reached: VecDeque<Receipt>,
    /// What devices leave and fetch.
    pub(super) devices: Devices,
    /// The position to which it goes back: nothing is handed on before.
    goes_back: Option<u64>,
    /// Before this nothing is asked again.
    waits: Option<Monotonic>,
    /// When the log is read though nobody announced anything.
    reads_at: Monotonic,
    pub(super) outputs: VecDeque<Output>,
    pub(super) drops: Drops,
    told: Drops,
    /// The relay showed two logs: nothing of it counts any more.
    pub(super) is_over: bool,
}

/// A message that is to be appended.
pub(super) struct Waiting {
    pub(super) token: Token,
    pub(super) datagram: Vec<u8>,
    /// The key of the epoch that it leads to.
    pub(super) names: Option<AppendKey>,
    pub(super) is_data: bool,
}

/// What the key scheme fetches. Who provides it may not have done so yet.
#[derive(Debug)]
pub(super) struct Requested {
    pub(super) what: Fetch,
    at: Monotonic,
    tries: u32,
}

/// What a request is for.
#[derive(Debug)]
pub(super) enum Purpose {
    Info,
    Head,
    Back(u64),
    Read,
    Append,
    Blobs(Vec<FetchId>),
    Package(FetchId),
    Keep(Vec<Fetch>),
    Packages,
    Mail(FetchId),
}

impl Purpose {
    /// What the key scheme waits for.
    fn fetches(&self) -> Vec<FetchId> {
        match self {
            Purpose::Blobs(ids) => ids.clone(),
            Purpose::Package(id) | Purpose::Mail(id) => vec![*id],
            Purpose::Info
            | Purpose::Head
            | Purpose::Back(_)
            | Purpose::Read
            | Purpose::Append
            | Purpose::Keep(_)
            | Purpose::Packages => Vec::new(),
        }
    }
}

impl Log {
    pub(super) fn open(config: Config, record: Option<&[u8]>, founds: bool, handle: Handle) -> Result<Log, Malformed> {
        let Config { relay, signer, device } = config;
        let mut follower = Follower::new(GroupId::of(&signer.public()), relay);
        let has_begun = record.is_some();
        if let Some(record) = record {
            let receipts = record.chunks(RECEIPT_BYTES).map(Receipt::from_bytes).collect::<Result<Vec<_>, _>>()?;
            let [from, newest] = receipts[..] else { return Err(Malformed) };
            follower.adopt(from).map_err(|_| Malformed)?;
            follower.exchange(&newest).map_err(|_| Malformed)?;
        }
        Ok(Log {
            device,
            signing: Signing::new(signer),
            follower,
            handle,
            beacons: Beacons::default(),
            is_known: false,
            founds,
            has_begun,
            is_connected: false,
            calls: VecDeque::new(),
            requests: VecDeque::new(),
            appends: VecDeque::new(),
            epoch: None,
            lost: 0,
            proposed_by: [0; 32],
            first_place: 0,
            is_withdrawn: false,
            proposes: false,
            provided: BTreeMap::new(),
            asked: BTreeMap::new(),
            cuts: BTreeMap::new(),
            reached: VecDeque::new(),
            devices: Devices::default(),
            goes_back: None,
            waits: None,
            reads_at: Monotonic(0),
            outputs: VecDeque::new(),
            drops: Drops::default(),
            told: Drops::default(),
            is_over: false,
        })
    }

    pub(super) fn has_begun(&self) -> bool {
        self.is_known && self.has_begun
    }

    /// Whether one more message may wait to be appended.
    pub(super) fn has_capacity(&self, is_data: bool) -> Result<(), SendError> {
        let most = limits::RELAY_APPENDS_MAX + if is_data { 0 } else { limits::RELAY_HANDSHAKES_MAX };
        if self.appends.len() >= most || self.is_over { Err(SendError::Full) } else { Ok(()) }
    }

    /// An eviction does not wait for data: what the end of an epoch makes void is sealed again.
    pub(super) fn append(&mut self, now: Now, message: Waiting) {
        let under_way = usize::from(self.follower.pending().is_some()).min(self.appends.len());
        let first_data = || self.appends.iter().skip(under_way).position(|it| it.is_data);
        let at = if message.is_data { None } else { first_data().map(|it| it + under_way) };
        self.appends.insert(at.unwrap_or(self.appends.len()), message);
        self.go_on(now);
    }

    /// An epoch begins: data that was sealed for one before it is void wherever it gets its position.
    pub(super) fn begin_epoch(&mut self, epoch: EpochId) {
        self.epoch = Some(epoch);
    }

    /// A message need not be appended. One that is under way may win.
    pub(super) fn withdraw(&mut self, token: Token) {
        match self.appends.iter().position(|it| it.token == token) {
            Some(0) if self.follower.pending().is_some() => self.is_withdrawn = true,
            Some(at) => {
                self.appends.remove(at);
                self.outputs.push_back(Output::Outcome(token, Outcome::Failed));
            }
            None => {}
        }
    }

    /// The hash of everything up to a position.
    pub(super) fn cut(&self, position: u64) -> Option<[u8; 32]> {
        self.cuts.get(&position).copied()
    }

    /// A view is flushed: the entries that follow belong to the next one.
    pub(super) fn flushed(&mut self, epoch: EpochId, cut: [u8; 32]) {
        self.outputs.push_front(Output::Flushed(epoch, cut));
    }

    /// A later run begins behind this position: at the last receipt before it.
    pub(super) fn checkpointed(&mut self, position: u64) {
        let count = self.reached.partition_point(|it| it.position <= position);
        let Some(from) = self.reached.drain(..count).next_back() else { return };
        self.reached.push_front(from);
        let newest = self.follower.receipt().copied().unwrap_or(from);
        let record = [from.to_bytes(), newest.to_bytes()].concat();
        self.outputs.push_back(Output::Store { id: RECORD, record });
    }

    /// We are out of the group.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.requests.clear();
    }

    // ---- channels ------------------------------------------------------------------------------

    pub(super) fn connected(&mut self, now: Now) {
        self.is_connected = true;
        self.waits = None;
        self.forget_calls();
        self.go_on(now);
    }

    pub(super) fn disconnected(&mut self, now: Now) {
        self.is_connected = false;
        self.forget_calls();
        self.reads_at = now.monotonic;
    }

    /// Nobody answers what is on its way. It is asked anew.
    fn forget_calls(&mut self) {
        self.calls.clear();
        self.requests.clear();
        self.asked.values_mut().for_each(|it| it.at = Monotonic(0));
        self.reads_at = Monotonic(0);
    }

    pub(super) fn request(&mut self, call: Call, purpose: Purpose) {
        self.requests.push_back(call.request().to_vec());
        self.calls.push_back((call, purpose));
    }

    pub(super) fn is_asking(&self, of: impl Fn(&Purpose) -> bool) -> bool {
        self.calls.iter().any(|(_, purpose)| of(purpose))
    }

    /// Asks for all that is to be asked now.
    pub(super) fn go_on(&mut self, now: Now) {
        if !self.is_connected || self.is_over || self.waits.is_some_and(|at| now.monotonic < at) {
            return;
        }
        self.waits = None;
        if !self.is_known {
            if !self.is_asking(|it| matches!(it, Purpose::Info)) {
                self.request(self.follower.info(), Purpose::Info);
            }
            return;
        }
        if !self.has_begun {
            if !self.is_asking(|it| matches!(it, Purpose::Head)) {
                self.request(self.follower.ask_newest(), Purpose::Head);
            }
            return;
        }
        if let Some(position) = self.goes_back {
            if !self.is_asking(|it| matches!(it, Purpose::Back(_))) {
                self.request(self.follower.ask_before(position), Purpose::Back(position));
            }
            return;
        }
        let reads = self.is_asking(|it| matches!(it, Purpose::Read));
        if !reads && (self.follower.is_behind() || now.monotonic >= self.reads_at) {
            self.reads_at = now.monotonic + READ_EVERY;
            self.request(self.follower.read(), Purpose::Read);
        }
        self.proposes = true;
        self.keep(now);
        self.ask(now);
    }

    /// Proposes the first message that waits, behind everything that we know; once the key scheme has seen that, too, since it may
    /// withdraw what it sent.
    pub(super) fn propose(&mut self) {
        let is_here = self.is_connected && !self.is_over && self.goes_back.is_none();
        let is_free = is_here && !self.is_asking(|it| matches!(it, Purpose::Append));
        if !std::mem::take(&mut self.proposes) || !is_free {
            return;
        }
        if self.follower.awaits_entry() {
            return;
        }
        if let Some(call) = self.follower.retry() {
            return self.request(call, Purpose::Append);
        }
        if self.follower.is_behind() {
            return;
        }
        while let Some(Waiting { token, datagram, names, is_data }) = self.appends.front() {
            let current = self.epoch.filter(|_| *is_data);
            let is_over = |it: &EpochId| Header::parse(datagram).is_ok_and(|of| of.epoch.counter < it.counter);
            if let Some(epoch) = current.filter(is_over) {
                self.outputs.push_back(Output::Outcome(*token, Outcome::Superseded(epoch)));
                self.appends.pop_front();
                continue;
            }
            let (signer, next_key) = self.signing.for_append(*names);
            self.proposed_by = signer.public();
            let entry = LogEntry { next_key, bytes: datagram.clone() };
            self.first_place = self.follower.position() + 1;
            let proposed = match self.lost {
                ..LOSES => self.follower.propose(entry, Vec::new(), Vec::new(), signer),
                LOSES.. => self.follower.propose_at_end(entry, signer),
            };
            match proposed {
                Ok(call) => return self.request(call, Purpose::Append),
                Err(_) => {
                    self.outputs.push_back(Output::Outcome(*token, Outcome::Failed));
                    self.appends.pop_front();
                }
            }
        }
    }

    /// Has kept what is provided, once there is a group to keep it for.
    fn keep(&mut self, now: Now) {
        if self.follower.position() == 0 || self.is_asking(|it| matches!(it, Purpose::Keep(_))) {
            return;
        }
        let signer = self.signing.for_others();
        let blobs = self.provided.iter().filter(|(what, _)| matches!(what, Fetch::Blob(_)));
        let (whats, blobs): (Vec<Fetch>, Vec<Blob>) =
            blobs.take(limits::RELAY_BLOBS_MAX).map(|(what, bytes)| (what.clone(), Blob::new(bytes.clone()))).unzip();
        if !blobs.is_empty()
            && let Ok(call) = self.follower.put_blobs(blobs, signer)
        {
            return self.request(call, Purpose::Keep(whats));
        }
        self.keep_of_devices(now);
    }

    /// Asks for what the key scheme fetches.
    fn ask(&mut self, now: Now) {
        let under_way: Vec<FetchId> = self.calls.iter().flat_map(|(_, purpose)| purpose.fetches()).collect();
        let (mut ids, mut hashes) = (Vec::new(), Vec::new());
        let mut calls = Vec::new();
        for (id, asked) in &mut self.asked {
            if asked.at > now.monotonic || under_way.contains(id) {
                continue;
            }
            match &asked.what {
                Fetch::Blob(hash) if ids.len() < limits::RELAY_BLOBS_MAX => {
                    ids.push(*id);
                    hashes.push(*hash);
                }
                Fetch::KeyPackage(cert) => {
                    let device = (self.device)(cert);
                    calls.push((self.follower.take_package(device, self.signing.for_others()), Purpose::Package(*id)));
                }
                Fetch::Mail(cert) => {
                    let device = (self.device)(cert);
                    let call = self.follower.mail(device, self.devices.fetched, self.signing.for_others());
                    calls.push((call, Purpose::Mail(*id)));
                }
                // The next request asks for it.
                Fetch::Blob(_) | Fetch::Shares { .. } | Fetch::Key => continue,
            }
            // It is answered before, or the channel breaks.
            asked.at = Monotonic(u64::MAX);
        }
        if !hashes.is_empty()
            && let Ok(call) = self.follower.blobs(hashes)
        {
            calls.push((call, Purpose::Blobs(ids)));
        }
        calls.into_iter().for_each(|(call, purpose)| self.request(call, purpose));
    }

    // ---- what the directory says ---------------------------------------------------------------

    pub(super) fn answered(&mut self, now: Now, response: &[u8]) {
        let call = if self.is_over { None } else { self.calls.pop_front() };
        let Some((call, purpose)) = call else { return self.drops.count(Dropped::Stale) };
        match self.follower.handle(&call, response) {
            Ok(answer) => {
                self.note_answer(&call, &answer);
                let signer = call.signer().filter(|_| answer == Answer::Refused(Refusal::WrongKey));
                if !signer.is_some_and(|it| self.signing.refused(&it)) {
                    self.take(now, purpose, answer);
                } else {
                    self.ask_by_other_key(now, purpose);
                }
            }
            Err(why) => {
                self.blame(now, why);
                purpose.fetches().into_iter().for_each(|id| self.fetched(now, id, None));
            }
        }
        self.go_on(now);
    }

    /// An announcement came. Anybody can make one that is none.
    pub(super) fn announced(&mut self, now: Now, announcement: &[u8]) {
        if !self.has_begun() || self.is_over {
            return;
        }
        match self.follower.hint(announcement) {
            Ok(progress) => self.progress(progress),
            Err(why @ Misbehaviour::Forked(_)) => self.blame(now, why),
            Err(_) => self.drops.count(Dropped::Auth),
        }
        self.go_on(now);
    }

    fn take(&mut self, now: Now, purpose: Purpose, answer: Answer) {
        match (purpose, answer) {
            (Purpose::Info, Answer::Info(_)) => self.is_known = true,
            (Purpose::Head, Answer::Newest(_)) if self.founds => {
                self.handle.lock().exists = true;
                self.end();
            }
            (Purpose::Head, Answer::Newest(newest)) => {
                // What it signed for us a moment ago it cannot have signed wrongly.
                if self.follower.adopt(newest).is_ok() {
                    self.has_begun = true;
                    self.note_reached();
                }
            }
            (Purpose::Head, Answer::Refused(Refusal::UnknownGroup)) => self.has_begun = true,
            (_, Answer::Progress(progress)) => self.progress(progress),
            // Announcements may have brought what it says is gone.
            (_, Answer::Gone(before)) if before.position <= self.follower.position() || self.goes_back.is_some() => {
                self.drops.count(Dropped::Stale);
            }
            (_, Answer::Gone(before)) => {
                // What is missing the key scheme notices by what comes behind it.
                let missed = Output::Missed(self.follower.position() + 1, before.position);
                self.outputs.push_back(missed);
                self.reads_at = now.monotonic;
                if self.follower.adopt(before).is_ok_and(|it| it.is_some()) {
                    self.fail_first(Outcome::InDoubt);
                }
            }
            (Purpose::Blobs(ids), Answer::Blobs(blobs)) => {
                for (id, (_, bytes)) in ids.into_iter().zip(blobs) {
                    self.fetched(now, id, bytes);
                }
            }
            (Purpose::Package(id), Answer::Package(taken)) => {
                self.fetched(now, id, taken.map(|it| it.package.bytes));
            }
            (Purpose::Back(position), Answer::Before(receipt)) => self.go_back(position, receipt),
            (Purpose::Packages, Answer::Stored { single_use }) => self.packages_kept(single_use),
            (Purpose::Mail(id), Answer::Mail { items, .. }) => self.mail_came(now, id, items),
            (Purpose::Keep(whats), Answer::Stored { .. }) => {
                whats.iter().for_each(|what| _ = self.provided.remove(what));
            }
            (purpose, Answer::Refused(why)) => self.refused(now, purpose, &why),
            (_, _) => self.drops.count(Dropped::Foreign),
        }
    }

    fn note_answer(&mut self, call: &Call, answer: &Answer) {
        let mut status = self.handle.lock();
        status.misbehaviour = None;
        if call.signer().is_some() {
            // Others are answered by asking in another way.
            let is_lasting = |why: &Refusal| matches!(why, Refusal::RateLimited { .. } | Refusal::Full);
            status.refusal = match answer {
                Answer::Refused(why) if is_lasting(why) => Some(why.to_string()),
                _ => None,
            };
        }
    }

    /// The directory does not know the key that signed. What was asked is asked again, signed by another one.
    fn ask_by_other_key(&mut self, now: Now, purpose: Purpose) {
        if let Purpose::Append = purpose {
            self.follower.withdraw();
        }
        for id in purpose.fetches() {
            self.asked.entry(id).and_modify(|it| it.at = now.monotonic);
        }
    }

    fn refused(&mut self, now: Now, purpose: Purpose, why: &Refusal) {
        if let Refusal::RateLimited { retry_after } = why {
            let again = now.monotonic + (*retry_after).min(WAIT_LONGEST);
            self.waits = Some(again);
            for id in purpose.fetches() {
                self.asked.entry(id).and_modify(|it| it.at = again);
            }
            if let Purpose::Append = purpose {
                self.follower.withdraw();
            }
            return;
        }
        match purpose {
            Purpose::Append => {
                self.follower.withdraw();
                self.fail_first(Outcome::Failed);
            }
            Purpose::Blobs(ids) => ids.into_iter().for_each(|id| self.fetched(now, id, None)),
            Purpose::Package(id) | Purpose::Mail(id) => self.fetched(now, id, None),
            Purpose::Packages if *why == Refusal::Stale && self.devices.count_on() => {}
            Purpose::Packages => _ = self.devices.packages.pop_front(),
            // What lay between is gone: the key scheme notices by what comes.
            Purpose::Back(_) => self.goes_back = None,
            // The directory has no room for them.
            Purpose::Keep(whats) => whats.iter().for_each(|what| _ = self.provided.remove(what)),
            // Nobody has founded the group yet.
            Purpose::Read if *why == Refusal::UnknownGroup => {}
            Purpose::Info | Purpose::Head | Purpose::Read => self.waits = Some(now.monotonic + REQUEST_AGAIN_AFTER),
        }
    }

    /// The relay did what no honest one does.
    pub(super) fn blame(&mut self, now: Now, why: Misbehaviour) {
        self.drops.count(Dropped::Auth);
        let mut status = self.handle.lock();
        status.misbehaviour = Some(why.to_string());
        if let Misbehaviour::Forked(evidence) = why {
            self.beacons.convicted(&evidence);
            status.evidence = Some(evidence);
            self.is_over = true;
        }
        self.waits = Some(now.monotonic + REQUEST_AGAIN_AFTER);
    }

    pub(super) fn fetched(&mut self, now: Now, id: FetchId, bytes: Option<Vec<u8>>) {
        let Some(asked) = self.asked.get_mut(&id) else { return };
        asked.tries += 1;
        let result = match bytes {
            Some(bytes) => Fetched::Bytes(bytes),
            None if asked.tries < tries_of(&asked.what) => {
                asked.at = now.monotonic + FETCH_AGAIN * (1 << asked.tries);
                return;
            }
            None => Fetched::Missing,
        };
        self.asked.remove(&id);
        self.outputs.push_back(Output::Fetched(id, result));
    }

    fn fail_first(&mut self, outcome: Outcome) {
        self.is_withdrawn = false;
        self.lost = 0;
        if let Some(Waiting { token, .. }) = self.appends.pop_front() {
            self.outputs.push_back(Output::Outcome(token, outcome));
        }
    }

    /// Goes back, unless all behind that position is still to come.
    pub(super) fn again(&mut self, now: Now, position: u64) {
        if self.has_begun && self.follower.position() <= position || self.is_over {
            return;
        }
        self.goes_back = Some(position);
        let is_entry =
            |it: &Output| matches!(it, Output::Keys { position: Some(_), .. } | Output::Record { ours: None, .. });
        self.outputs.retain(|it| !is_entry(it));
        self.go_on(now);
    }

    /// The receipt of the position to go back to: a later run may begin there, too.
    fn go_back(&mut self, position: u64, receipt: Receipt) {
        self.goes_back = None;
        let Ok(outcome) = self.follower.go_back(receipt) else { return };
        if outcome.is_some() {
            self.fail_first(Outcome::InDoubt);
        }
        self.reached.push_front(receipt);
        self.checkpointed(position);
    }

    fn progress(&mut self, progress: Progress) {
        if self.goes_back.is_some() {
            // It comes again, what we appended as another's.
            if progress.outcome.is_some() {
                self.fail_first(Outcome::InDoubt);
            }
            return;
        }
        let is_any = !progress.entries.is_empty();
        for entry in progress.entries {
            if let Err(why) = self.hand_on(entry) {
                self.drops.count(why);
            }
        }
        if progress.outcome.is_some() {
            let is_withdrawn = std::mem::take(&mut self.is_withdrawn);
            self.lost = match progress.outcome {
                Some(Became::Lost) => self.lost + 1,
                // Others are still faster.
                Some(Became::Won(position)) if position > self.first_place => self.lost,
                Some(Became::Won(_) | Became::Unknown) | None => 0,
            };
            match progress.outcome {
                Some(Became::Unknown) => self.fail_first(Outcome::InDoubt),
                Some(Became::Lost) if is_withdrawn => self.fail_first(Outcome::Failed),
                Some(Became::Won(_) | Became::Lost) | None => {}
            }
        }
        if is_any {
            self.note_reached();
        }
    }

    fn note_reached(&mut self) {
        let Some(receipt) = self.follower.receipt() else { return };
        if self.reached.len() >= limits::RELAY_BEGINNINGS_MAX {
            let mut keep = false;
            self.reached.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.reached.push_back(*receipt);
    }

    /// Hands on what has this position: a sealed datagram as it came, since its receiver opens it there.
    fn hand_on(&mut self, entry: Entry) -> Result<(), Dropped> {
        let Entry { position, head, bytes, is_own, next_key } = entry;
        // More than come before what they are needed for is done.
        if self.cuts.len() >= 2 * limits::RELAY_READ_ENTRIES_MAX {
            self.cuts.pop_first();
        }
        self.cuts.insert(position, head.0);
        let ours = if is_own { self.appends.pop_front().map(|it| it.token) } else { None };
        if ours.is_some() {
            self.signing.appended(&self.proposed_by, next_key);
        }
        next_key.iter().for_each(|it| self.signing.named(it));
        let source = Source::Outside(DIRECTORY);
        if bytes.get(1) == Some(&KIND_SEALED) {
            self.outputs.push_back(Output::Record { index: position, from: source, ours, datagram: bytes });
            return Ok(());
        }
        if let Some(token) = ours {
            self.outputs.push_back(Output::Outcome(token, Outcome::Ordered(position)));
            return Ok(());
        }
        let bytes = keys_message(&bytes)?.to_vec();
        self.outputs.push_back(Output::Keys { source, position: Some(position), bytes });
        Ok(())
    }

    // ---- what the key scheme wants -------------------------------------------------------------

    pub(super) fn fetch(&mut self, now: Now, id: FetchId, what: &Fetch) {
        let is_here = matches!(what, Fetch::Blob(_) | Fetch::KeyPackage(_) | Fetch::Mail(_));
        if !is_here || self.asked.len() >= limits::MLS_ANNEX_PIECES_MAX || self.is_over {
            return self.outputs.push_back(Output::Fetched(id, Fetched::Missing));
        }
        self.asked.insert(id, Requested { what: what.clone(), at: now.monotonic, tries: 0 });
        self.go_on(now);
    }

    pub(super) fn provide(&mut self, now: Now, what: &Fetch, bytes: &[u8]) {
        if bytes.len() > limits::RELAY_BLOB_BYTES_MAX || self.provided.len() >= 2 * limits::MLS_ANNEX_PIECES_MAX {
            return self.drops.count(Dropped::Queue);
        }
        if let Fetch::KeyPackage(cert) = what {
            // Without a clock its end is not known.
            let until = Utc(now.utc.map_or(i64::MAX, |utc| utc.0.saturating_add(PACKAGE_LASTS)));
            let last_resort = Some(bytes.to_vec());
            return self.keep_packages(now, &KeyPackages { cert: *cert, single_use: Vec::new(), last_resort, until });
        }
        self.provided.insert(what.clone(), bytes.to_vec());
        self.go_on(now);
    }

    // ---- time ----------------------------------------------------------------------------------

    pub(super) fn timeout(&self) -> Option<Monotonic> {
        if self.is_over {
            return None;
        }
        if !self.is_connected {
            return self.beacons.timeout();
        }
        if !self.has_begun() || self.goes_back.is_some() {
            // It is answered before, or the channel breaks.
            return self.waits.into_iter().chain(self.beacons.timeout()).min();
        }
        let reads = !self.is_asking(|it| matches!(it, Purpose::Read));
        let fetches = self.asked.values().filter(|it| it.tries > 0).map(|it| it.at).min();
        let reads = self.waits.or_else(|| reads.then_some(self.reads_at).into_iter().chain(fetches).min());
        reads.into_iter().chain(self.beacons.timeout()).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Now, protect: Option<&dyn Protect>) {
        self.say_beacon(now, protect);
        self.go_on(now);
    }

    pub(super) fn next_request(&mut self) -> Option<Vec<u8>> {
        self.requests.pop_front()
    }

    pub(super) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front().or_else(|| self.drops.since(&mut self.told).map(Output::Dropped))
    }
}

/// How often something is asked for: others provide pieces a moment later, packages when they start, and mail is there or not.
fn tries_of(what: &Fetch) -> u32 {
    match what {
        Fetch::Mail(_) => 1,
        Fetch::KeyPackage(_) => FETCH_TRIES / 2,
        Fetch::Blob(_) | Fetch::Shares { .. } | Fetch::Key => FETCH_TRIES,
    }
}

/// The log is read though nobody announced anything.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Who lost the head so often to others appends wherever the log ends: somebody may append faster than answers come.
const LOSES: u32 = 3;
/// What failed is asked again.
const REQUEST_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// However long the directory wants us to wait.
const WAIT_LONGEST: Duration = Duration::from_secs(30);
/// What was not there is fetched again.
const FETCH_AGAIN: Duration = Duration::from_millis(100);
const FETCH_TRIES: u32 = 6;
/// Seconds for which a key package is kept that says nothing of its end.
const PACKAGE_LASTS: i64 = 90 * 24 * 3600;
const RECORD: u64 = 1;
