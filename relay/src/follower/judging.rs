//! What receipts and pages add to a follower's log, contradict, or leave out.

use std::iter;

use sealcast_wire::limits;

use super::call::Kind;
use super::{Answer, Call, Entry, Follower, Misbehaviour, Outcome, Pending, Progress};
use crate::evidence::Evidence;
use crate::ids::Head;
use crate::log::{Link, LogEntry, first_head};
use crate::receipt::Receipt;
use crate::request::Request;
use crate::response::Page;

impl Follower {
    /// Whether the pinned key signed it, for this group.
    pub(super) fn authentic(&self, receipt: &Receipt) -> Result<(), Misbehaviour> {
        if receipt.group != self.group {
            return Err(Misbehaviour::Unexpected);
        }
        // A receipt that was verified before is most often among those that come.
        let known = [self.receipt, self.newest];
        if known.contains(&Some(*receipt)) || receipt.verify(&self.relay) {
            Ok(())
        } else {
            Err(Misbehaviour::BadReceipt)
        }
    }

    /// The head at a position, if it is known.
    pub(super) fn head_at(&self, position: u64) -> Option<Head> {
        if position == 0 {
            return Some(first_head(&self.group));
        }
        if position == self.position {
            return Some(self.head);
        }
        let back = usize::try_from(self.position.checked_sub(position)?).ok()?;
        let index = self.links.len().checked_sub(back)?;
        self.links.get(index).map(|(before, _)| *before)
    }

    /// Whether an authentic receipt fits what is known; the proof if it does not.
    pub(super) fn compare(&self, receipt: &Receipt) -> Result<(), Misbehaviour> {
        if let (Some(head), Some(own)) = (self.head_at(receipt.position), self.receipt)
            && head != receipt.head
        {
            let back = (self.position - receipt.position) as usize;
            let links = self.links.iter().skip(self.links.len() - back).map(|(_, link)| *link).collect();
            return Err(forked(*receipt, head, links, own));
        }
        match self.newest {
            Some(newest) if newest.position == receipt.position && newest.head != receipt.head => {
                Err(forked(*receipt, newest.head, Vec::new(), newest))
            }
            _ => Ok(()),
        }
    }

    /// Remembers an authentic receipt if it is the newest one.
    pub(super) fn note(&mut self, receipt: Receipt) {
        let newest = self.newest.map_or(self.position, |it| it.position);
        if receipt.position > newest {
            self.newest = Some(receipt);
        }
    }

    /// The directory says that an append is in the log.
    pub(super) fn accepted(&mut self, call: &Call, first: u64, receipt: Receipt) -> Result<Progress, Misbehaviour> {
        self.authentic(&receipt)?;
        self.compare(&receipt)?;
        let Ok(Request::Append(append, _)) = Request::decode(call.request()) else {
            return Err(Misbehaviour::Unexpected);
        };
        let head = append.entry.link().head(&append.expected_head, first);
        // Whether it is at a later position the entries there show.
        if append.at_end && receipt.position > first {
            self.note(receipt);
            let pending = self.pending.as_mut().filter(|it| it.request == call.request());
            pending.into_iter().for_each(|it| it.until = Some(receipt.position));
            let is_over = receipt.position <= self.position;
            let lost = self.pending.take_if(|it| is_over && it.until == Some(receipt.position));
            return Ok(Progress { entries: Vec::new(), outcome: lost.map(|_| Outcome::Lost) });
        }
        if (receipt.position, receipt.head) != (first, head) {
            return Err(Misbehaviour::WrongEntries);
        }
        // Otherwise it came already, by a page or an announcement.
        if self.position + 1 == first && self.head == append.expected_head {
            return self.advance(vec![append.entry], receipt, receipt);
        }
        Ok(Progress::default())
    }

    /// The directory gives a run of the log.
    pub(super) fn page(&mut self, call: &Call, page: Page) -> Result<Progress, Misbehaviour> {
        let Page { before, mut entries, reached, newest } = page;
        for receipt in before.iter().chain([&reached, &newest]) {
            self.authentic(receipt)?;
            self.compare(receipt)?;
        }
        let start = before.map_or(0, |it| it.position);
        let end = start.checked_add(entries.len() as u64).ok_or(Misbehaviour::Unexpected)?;
        if reached.position != end || newest.position < end {
            return Err(Misbehaviour::Unexpected);
        }
        self.is_up_to_date(call, &newest)?;
        let fits = match call.kind {
            Kind::Append(first) => newest.position >= first,
            _ => start == call.position,
        };
        if !fits {
            return Err(Misbehaviour::Unexpected);
        }
        // What the page itself shows must hold together, whatever is known of its beginning.
        let mut head = before.map_or(first_head(&self.group), |it| it.head);
        for (entry, position) in entries.iter().zip(start + 1..) {
            head = entry.link().head(&head, position);
        }
        if head != reached.head || newest.position == end && newest.head != reached.head {
            return Err(Misbehaviour::WrongEntries);
        }
        if start > self.position {
            // A conflict whose entries the directory does not have; it may still give them when they are read.
            self.note(newest);
            return Ok(Progress::default());
        }
        if end <= self.position {
            // Everything in it is known. An answer to a read that knew no more must bring something if there is something.
            if entries.is_empty() && call.position == self.position && newest.position > end {
                return Err(Misbehaviour::Withheld { signed: newest.position, given: end });
            }
            self.note(newest);
            return Ok(Progress::default());
        }
        entries.drain(..(self.position - start) as usize);
        self.advance(entries, reached, newest)
    }

    /// Entries after the follower's position are gone.
    pub(super) fn gone(&mut self, call: &Call, before: Receipt, newest: Receipt) -> Result<Answer, Misbehaviour> {
        for receipt in [&before, &newest] {
            self.authentic(receipt)?;
            self.compare(receipt)?;
        }
        if before.position <= call.position || newest.position < before.position {
            return Err(Misbehaviour::Unexpected);
        }
        self.is_up_to_date(call, &newest)?;
        Ok(Answer::Gone(before))
    }

    /// Whether the log is as long as the directory itself signed before it was asked.
    pub(super) fn is_up_to_date(&self, call: &Call, newest: &Receipt) -> Result<(), Misbehaviour> {
        if newest.position < call.position {
            return Err(Misbehaviour::RolledBack { had: call.position, now: newest.position });
        }
        if newest.position < call.newest {
            return Err(Misbehaviour::Withheld { signed: call.newest, given: newest.position });
        }
        Ok(())
    }

    /// Takes entries after the follower's position that lead to an authentic receipt.
    pub(super) fn advance(
        &mut self,
        entries: Vec<LogEntry>,
        reached: Receipt,
        newest: Receipt,
    ) -> Result<Progress, Misbehaviour> {
        let mut links = Vec::with_capacity(entries.len());
        let mut head = self.head;
        for (entry, position) in entries.iter().zip(self.position + 1..) {
            let link = entry.link();
            links.push((head, link));
            head = link.head(&head, position);
        }
        if head != reached.head {
            return Err(Misbehaviour::WrongEntries);
        }
        // Somebody has a receipt for a position in between.
        if let Some(known) = self.newest.filter(|it| it.position <= reached.position) {
            let at = known.position.checked_sub(self.position + 1).ok_or(Misbehaviour::Unexpected)? as usize;
            let passed = links.get(at + 1).map_or(reached.head, |(before, _)| *before);
            if passed != known.head {
                let links: Vec<Link> = links.iter().skip(at + 1).map(|(_, link)| *link).collect();
                return Err(forked(known, passed, links, reached));
            }
        }

        let mut progress = Progress::default();
        let heads = links.iter().skip(1).map(|(before, _)| *before).chain(iter::once(head));
        let first = self.position + 1;
        for ((entry, head), position) in entries.into_iter().zip(heads).zip(first..) {
            let link = entry.link();
            let wins = |it: &Pending| it.head.map_or(it.link == link, |own| own == head);
            let is_over = |it: &Pending| it.until.is_some_and(|until| until <= position);
            let pending = self.pending.take_if(|it| wins(it) || is_over(it));
            let is_own = pending.as_ref().is_some_and(wins);
            if pending.is_some() {
                progress.outcome = Some(if is_own { Outcome::Won(position) } else { Outcome::Lost });
            }
            progress.entries.push(Entry { position, head, next_key: entry.next_key, bytes: entry.bytes, is_own });
        }
        self.links.extend(links);
        let surplus = self.links.len().saturating_sub(limits::RELAY_LINKS_MAX);
        self.links.drain(..surplus);
        self.position = reached.position;
        self.head = head;
        self.receipt = Some(reached);
        self.newest = self.newest.filter(|it| it.position > self.position);
        self.note(newest);
        Ok(progress)
    }
}

fn forked(one: Receipt, head: Head, links: Vec<Link>, other: Receipt) -> Misbehaviour {
    Misbehaviour::Forked(Box::new(Evidence { one, head, links, other }))
}
